package ec2sim

import (
	"slices"
	"time"
)

// retryDisk is how soon a disk is tried again that the machine refused or the
// instance still uses.
const retryDisk = time.Second

// advance moves on everything whose time has come. The caller holds s.mu.
func (s *Sim) advance() {
	now := s.clock.Now()
	for _, v := range s.store.volumes {
		if s.advanceVolume(v, now) {
			s.store.putVolume(v)
		}
		if v.State == stateDeleting && !v.Until.After(now) {
			s.vanish(v, now)
		}
	}
	for _, sn := range s.store.snapshots {
		if !s.copying[sn.ID] && s.advanceSnapshot(sn, now) {
			s.store.putSnapshot(sn)
		}
	}
	s.forgetTokens(now)
	if err := s.store.commit(); err != nil {
		s.cfg.Log.Error(err, "state not kept")
	}
}

func (s *Sim) advanceVolume(v *Volume, now time.Time) bool {
	changed := false
	if v.State == stateCreating && !v.Until.After(now) && !s.copying[v.ID] {
		v.State, v.Until = stateAvailable, time.Time{}
		if v.Doomed {
			v.State = stateDeleting // and gone at once
		}
		if v.Failing {
			v.State = stateError
		}
		changed = true
	}
	for i := range v.Attachments {
		changed = s.advanceAttachment(v, &v.Attachments[i], now) || changed
	}
	v.Attachments = slices.DeleteFunc(v.Attachments, func(a Attachment) bool { return a.State == "" })
	if v.State == stateInUse && len(v.Attachments) == 0 {
		v.State = stateAvailable
		changed = true
	}
	if m := v.modification(); m != nil {
		changed = s.advanceModification(v, m, now) || changed
	}
	return changed
}

// advanceAttachment tells whether it changed; an attachment that ended has an
// empty state afterwards.
func (s *Sim) advanceAttachment(v *Volume, a *Attachment, now time.Time) bool {
	if !a.passing() || a.Until.After(now) {
		return false
	}
	dev := s.devDir(a.InstanceID)
	if a.State == attachAttaching {
		if err := s.attachDisk(v, dev); err != nil {
			s.cfg.Log.Error(err, "disk not attached", "volumeID", v.ID, "instanceID", a.InstanceID)
			a.Trouble, a.Until = err.Error(), now.Add(retryDisk)
			return true
		}
		a.State, a.Until, a.Trouble = attachAttached, time.Time{}, ""
		return true
	}
	gone, err := s.detachDisk(v, dev, a.Force)
	switch {
	case err != nil:
		s.cfg.Log.Error(err, "disk not detached", "volumeID", v.ID, "instanceID", a.InstanceID)
		a.Trouble, a.Until = err.Error(), now.Add(retryDisk)
	case gone:
		a.State = ""
	default: // the instance still uses the device
		a.State, a.Until, a.Trouble = attachBusy, now.Add(retryDisk), ""
	}
	return true
}

// passing tells whether time alone moves the attachment on.
func (a *Attachment) passing() bool {
	return a.State != attachAttached && (a.State != attachAttaching || !a.Stuck)
}

func (s *Sim) attachDisk(v *Volume, dev string) error {
	if dev == "" || v.RootOf != "" {
		return nil
	}
	return s.disks.Attach(v.ID, dev)
}

func (s *Sim) detachDisk(v *Volume, dev string, force bool) (bool, error) {
	if dev == "" || v.RootOf != "" {
		return true, nil
	}
	return s.disks.Detach(v.ID, dev, force)
}

func (s *Sim) growDisk(v *Volume, to int32) error {
	if v.RootOf != "" || to == v.SizeGiB {
		return nil
	}
	return s.disks.Grow(v.ID, gib(to))
}

// advanceModification: the new size can be used from optimizing on.
// https://docs.aws.amazon.com/ebs/latest/userguide/monitoring-volume-modifications.html
func (s *Sim) advanceModification(v *Volume, m *Modification, now time.Time) bool {
	changed := false
	if m.State == modModifying && !m.Usable.After(now) {
		if err := s.growDisk(v, m.To.SizeGiB); err != nil {
			s.cfg.Log.Error(err, "disk not grown", "volumeID", v.ID)
			m.Trouble, m.Usable = err.Error(), now.Add(retryDisk)
			return true
		}
		v.SizeGiB, v.Type, v.IOPS, v.ThroughputMiBs, v.MultiAttach = m.To.SizeGiB, m.To.Type, m.To.IOPS, m.To.ThroughputMiBs, m.To.MultiAttach
		m.State, m.Trouble = modOptimizing, ""
		changed = true
	}
	if m.State == modOptimizing && !m.Done.After(now) {
		m.State = modCompleted
		changed = true
	}
	return changed
}

func (s *Sim) advanceSnapshot(sn *Snapshot, now time.Time) bool {
	changed := false
	if sn.State == snapPending && !sn.Until.After(now) {
		changed = true
		if sn.Doomed {
			sn.State, sn.Lock = snapError, nil // a lock ends with it
		} else {
			sn.State, sn.Completed = snapCompleted, sn.Until
			sn.startLock()
		}
	}
	for i := range sn.FastRestores {
		changed = s.advanceFastRestore(sn, &sn.FastRestores[i], now) || changed
	}
	return changed
}

// vanish ends a volume in state deleting. Its record stays until the file is
// gone, so that a file the machine does not let go is tried again.
func (s *Sim) vanish(v *Volume, now time.Time) {
	if v.RootOf == "" {
		if err := s.disks.DeleteVolume(v.ID); err != nil {
			s.cfg.Log.Error(err, "disk not deleted", "volumeID", v.ID)
			v.Until = now.Add(retryDisk)
			s.store.putVolume(v)
			return
		}
	}
	s.store.dropVolume(v.ID)
}

// nextDue is the earliest time at which something passes, zero if nothing does.
func (s *Sim) nextDue() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, v := range s.store.volumes {
		if v.State == stateDeleting || v.State == stateCreating && !s.copying[v.ID] {
			consider(v.Until)
		}
		for _, a := range v.Attachments {
			if a.passing() {
				consider(a.Until)
			}
		}
		if m := v.modification(); m != nil && m.State == modModifying {
			consider(m.Usable)
		} else if m != nil && m.State == modOptimizing {
			consider(m.Done)
		}
	}
	for _, sn := range s.store.snapshots {
		if sn.State == snapPending && !s.copying[sn.ID] {
			consider(sn.Until)
		}
		for _, f := range sn.FastRestores {
			if f.passing(sn) {
				consider(f.Until)
			}
		}
	}
	return next
}

// gib is a size in bytes.
func gib(n int32) int64 { return int64(n) << 30 }
