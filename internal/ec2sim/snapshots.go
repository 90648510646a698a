package ec2sim

// snapshot is the snapshot of an id, or the refusal EC2 has for it.
func (s *Sim) snapshot(id string) (*Snapshot, *APIError) {
	if err := snapshotIDs.check(id); err != nil {
		return nil, err
	}
	sn := s.store.snapshots[id]
	if sn == nil {
		return nil, snapshotNotFound(id)
	}
	return sn, nil
}
