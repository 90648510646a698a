package ec2sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// rootGiB is the size of an instance's root disk.
const rootGiB = 8

// AddInstance adds an instance, or changes type, sources, dev folder and (where
// they are given) state and tags of one that exists and shows its volumes in
// the dev folder again, as a boot does. An instance that is added again after
// it was terminated is an error, as EC2 uses no id twice.
func (s *Sim) AddInstance(want Instance) error {
	want = want.clone()
	want.Type = cmp.Or(want.Type, "m5.large")
	if err := s.checkInstance(want); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.store.instances[want.ID]
	switch {
	case i == nil:
		want.State = cmp.Or(want.State, instanceRunning)
		want.Launched = s.clock.Now()
		want.RootID = s.addRoot(&want).ID
		i = &want
	case i.State == instanceTerminated:
		return fmt.Errorf("instance %s was terminated; give the new one another id", want.ID)
	case i.Zone != want.Zone:
		return fmt.Errorf("instance %s is in zone %s and cannot move to %s", want.ID, i.Zone, want.Zone)
	default:
		i.Type, i.Sources, i.DevDir, i.NetworkInterfaces = want.Type, want.Sources, want.DevDir, want.NetworkInterfaces
		i.State = cmp.Or(want.State, i.State)
		if want.Tags != nil {
			i.Tags = want.Tags
		}
	}
	s.store.putInstance(i)
	return errors.Join(s.store.commit(), s.showDisks(i))
}

func (s *Sim) checkInstance(i Instance) error {
	if err := instanceIDs.check(i.ID); err != nil {
		return fmt.Errorf("instance id %q: want i- and 17 hexadecimal digits", i.ID)
	}
	if s.zoneID(i.Zone) == "" {
		return fmt.Errorf("instance %s: zone %q is none of the region's", i.ID, i.Zone)
	}
	if _, ok := typeTable[i.Type]; !ok {
		return fmt.Errorf("instance %s: type %q is not modelled; known are %v", i.ID, i.Type, slices.Sorted(maps.Keys(typeTable)))
	}
	if i.State != "" && i.State != instanceRunning && i.State != instanceStopped {
		return fmt.Errorf("instance %s: state %q: want running or stopped", i.ID, i.State)
	}
	for _, src := range i.Sources {
		if _, err := parseSource(src); err != nil {
			return fmt.Errorf("instance %s: source %q: want an address or a CIDR", i.ID, src)
		}
	}
	return nil
}

// parseSource reads an address or a CIDR.
func parseSource(src string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(src); err == nil {
		return a.Prefix(a.BitLen())
	}
	return netip.ParsePrefix(src)
}

func (s *Sim) addRoot(i *Instance) *Volume {
	now := s.clock.Now()
	v := &Volume{
		ID: newID("vol-"), Zone: i.Zone, SizeGiB: rootGiB, Type: "gp3", IOPS: 3000, ThroughputMiBs: 125, Created: now,
		State: stateInUse, RootOf: i.ID,
		Attachments: []Attachment{{InstanceID: i.ID, Device: rootDevice, State: attachAttached, Since: now, DeleteOnTermination: true}},
	}
	s.store.putVolume(v)
	return v
}

// showDisks has every attached volume appear in the instance's dev folder.
func (s *Sim) showDisks(i *Instance) error {
	var errs []error
	for _, v := range s.attachedTo(i.ID) {
		if v.attachment(i.ID).State == attachAttached {
			errs = append(errs, s.attachDisk(v, i.DevDir))
		}
	}
	return errors.Join(errs...)
}

// StopInstance stops an instance; its volumes stay attached.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Stop_Start.html
func (s *Sim) StopInstance(id string) error {
	return s.changeInstance(id, func(i *Instance) error {
		i.State = instanceStopped
		return nil
	})
}

// StartInstance starts a stopped instance; its volumes appear again.
func (s *Sim) StartInstance(id string) error {
	return s.changeInstance(id, func(i *Instance) error {
		i.State = instanceRunning
		return s.showDisks(i)
	})
}

// TerminateInstance ends an instance: its volumes detach by force, those with
// DeleteOnTermination are deleted. It stays visible as terminated.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html
func (s *Sim) TerminateInstance(id string) error {
	return s.changeInstance(id, func(i *Instance) error {
		i.State = instanceTerminated
		now := s.clock.Now()
		for _, v := range s.attachedTo(id) {
			a := v.attachment(id)
			if a.DeleteOnTermination {
				s.store.dropVolume(v.ID) // a root disk, which has no content here
				continue
			}
			a.State, a.Force, a.Until = attachDetaching, true, now
			s.store.putVolume(v)
		}
		return nil
	})
}

func (s *Sim) changeInstance(id string, change func(*Instance) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.store.instances[id]
	if i == nil {
		return fmt.Errorf("instance %s does not exist", id)
	}
	if i.State == instanceTerminated {
		return fmt.Errorf("instance %s is terminated", id)
	}
	err := change(i)
	s.store.putInstance(i)
	err = errors.Join(err, s.store.commit())
	s.wake()
	return err
}

// RemoveInstance forgets a terminated instance, as EC2 does after about an hour.
func (s *Sim) RemoveInstance(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.store.instances[id]
	if i == nil || i.State != instanceTerminated || len(s.attachedTo(id)) > 0 {
		return fmt.Errorf("instance %s is not there, not terminated, or has volumes still", id)
	}
	s.store.dropInstance(id)
	return s.store.commit()
}
