package ec2sim

import (
	"cmp"
	"slices"
)

// Volume is a copy of a volume, false if there is none of that id.
func (s *Sim) Volume(id string) (Volume, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	v := s.store.volumes[id]
	if v == nil {
		return Volume{}, false
	}
	return v.clone(), true
}

// Volumes are copies of all volumes but the root disks, in order of their ids.
func (s *Sim) Volumes() []Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	out := []Volume{}
	for _, v := range s.store.volumes {
		if v.RootOf == "" {
			out = append(out, v.clone())
		}
	}
	slices.SortFunc(out, func(a, b Volume) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Snapshot is a copy of a snapshot, false if there is none of that id.
func (s *Sim) Snapshot(id string) (Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	sn := s.store.snapshots[id]
	if sn == nil || s.copying[id] {
		return Snapshot{}, false
	}
	return sn.clone(), true
}

// Snapshots are copies of all snapshots, in order of their ids.
func (s *Sim) Snapshots() []Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	out := []Snapshot{}
	for id, sn := range s.store.snapshots {
		if !s.copying[id] {
			out = append(out, sn.clone())
		}
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Instances are copies of all instances, in order of their ids.
func (s *Sim) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	out := []Instance{}
	for _, i := range s.store.instances {
		out = append(out, i.clone())
	}
	slices.SortFunc(out, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Delays are the delays in force.
func (s *Sim) Delays() Delays {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delays
}

// SetDelays changes the delays of states that begin from now on.
func (s *Sim) SetDelays(d Delays) error {
	if err := d.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delays = d
	return nil
}

// Quotas are the account's limits in force.
func (s *Sim) Quotas() Quotas {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quotas
}

// SetQuotas changes the account's limits.
func (s *Sim) SetQuotas(q Quotas) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quotas = q
}
