package ec2sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

func snapshotActions() []action {
	return []action{{
		name:   "CreateSnapshot",
		handle: createSnapshot,
		params: params([]string{"VolumeId", "Description"}, tagSpec),
		bucket: bucketCreate,
	}, {
		name:   "CreateSnapshots",
		handle: createSnapshots,
		params: params([]string{"InstanceSpecification.InstanceId", "InstanceSpecification.ExcludeBootVolume",
			"InstanceSpecification.ExcludeDataVolumeId.N", "CopyTagsFromSource", "Description"}, tagSpec),
		bucket: bucketCreate,
	}, {
		name:   "DescribeSnapshots",
		handle: describeSnapshots,
		params: params([]string{"SnapshotId.N", "Owner.N", "RestorableBy.N"}, filterParam, paging),
		filters: params(tagFilters, []string{"description", "encrypted", "owner-id", "progress", "snapshot-id", "start-time", "status",
			"storage-tier", "volume-id", "volume-size"}),
		bucket: bucketDescribe, plainBucket: true,
	}, {
		name:   "DeleteSnapshot",
		handle: deleteSnapshot,
		params: []string{"SnapshotId"},
		bucket: bucketCreate,
	}}
}

type snapshotXML struct {
	ID             string      `xml:"snapshotId"`
	VolumeID       string      `xml:"volumeId"`
	Status         string      `xml:"status"`
	StatusMessage  *string     `xml:"statusMessage"`
	StartTime      string      `xml:"startTime"`
	CompletionTime *string     `xml:"completionTime"`
	Progress       string      `xml:"progress"`
	OwnerID        string      `xml:"ownerId"`
	VolumeSize     int32       `xml:"volumeSize"`
	Description    string      `xml:"description"`
	Encrypted      bool        `xml:"encrypted"`
	KMSKeyID       *string     `xml:"kmsKeyId"`
	StorageTier    string      `xml:"storageTier"`
	Tags           set[tagXML] `xml:"tagSet"`
}

type snapshotAnswer struct {
	answer
	snapshotXML
}

type snapshotsAnswer struct {
	answer
	Snapshots set[snapshotXML] `xml:"snapshotSet"`
	NextToken *string          `xml:"nextToken"`
}

const storageTier = "standard"

func (s *Sim) snapshotXML(sn *Snapshot) snapshotXML {
	message := ""
	if sn.State == snapError {
		message = "The snapshot could not be created."
	}
	return snapshotXML{
		StatusMessage: ptr(message),
		ID:            sn.ID, VolumeID: sn.VolumeID, Status: sn.State, StartTime: wireTime(sn.Started), CompletionTime: ptr(wireTime(sn.Completed)),
		Progress: s.progress(sn), OwnerID: s.cfg.Account, VolumeSize: sn.SizeGiB, Description: sn.Description,
		Encrypted: sn.Encrypted, KMSKeyID: ptr(sn.KMSKeyID), StorageTier: storageTier, Tags: tagsXML(sn.Tags),
	}
}

func (s *Sim) progress(sn *Snapshot) string {
	if sn.State == snapCompleted {
		return "100%"
	}
	return fmt.Sprintf("%d%%", percent(sn.Started, sn.Until, s.clock.Now()))
}

// percent is how much of a time span has passed, below 100 while it lasts.
func percent(from, to, now time.Time) int64 {
	whole := to.Sub(from)
	if whole <= 0 {
		return 99
	}
	return int64(max(0, min(99, 100*now.Sub(from)/whole)))
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateSnapshot.html
func createSnapshot(r *request) (stampable, *APIError) {
	volumeID, description := r.must("VolumeId"), r.str("Description")
	tags, err := r.newTags("snapshot")
	if err != nil {
		return nil, err
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	v, err := r.sim.volume(volumeID)
	if err != nil {
		return nil, err
	}
	sn := r.newSnapshot(v, description, tags)
	if err := r.allow(r.sim.volumeResource(v)); err != nil {
		return nil, err
	}
	if err := r.allowNew(r.sim.newSnapshotResource(sn, v), sn.Tags); err != nil {
		return nil, err
	}
	if err := r.checkSnapshots(v); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	if err := r.sim.makeSnapshots(sn); err != nil {
		return nil, err
	}
	return &snapshotAnswer{snapshotXML: r.sim.snapshotXML(sn)}, nil
}

func (r *request) newSnapshot(v *Volume, description string, tags map[string]string) *Snapshot {
	id := newID("snap-")
	return &Snapshot{
		ID: id, VolumeID: v.ID, SizeGiB: v.SizeGiB, Encrypted: v.Encrypted, KMSKeyID: v.KMSKeyID,
		Description: description, Started: r.now, State: snapPending, Until: r.after(id, r.sim.delays.Snapshot), Tags: tags,
		Doomed: r.fault.ends(OutcomeError),
	}
}

// newSnapshotResource is a snapshot that is to be made.
func (s *Sim) newSnapshotResource(sn *Snapshot, v *Volume) resource {
	return resource{s.arn("snapshot", "*"), map[string][]string{
		"ec2:ParentVolume": {s.arn("volume", v.ID)},
		"ec2:VolumeSize":   {strconv.Itoa(int(sn.SizeGiB))},
		"ec2:Encrypted":    {strconv.FormatBool(sn.Encrypted)},
	}}
}

// checkSnapshots judges whether the volumes can be snapshotted now, all of
// them by this one call.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
func (r *request) checkSnapshots(volumes ...*Volume) *APIError {
	for _, v := range volumes {
		if err := r.checkSnapshot(v); err != nil {
			return err
		}
	}
	pending := 0
	for _, sn := range r.sim.store.snapshots {
		if sn.State == snapPending {
			pending++
		}
	}
	q, more := r.sim.quotas, len(volumes)
	switch {
	case q.PendingSnapshots > 0 && pending+more > q.PendingSnapshots:
		return refuse("PendingSnapshotLimitExceeded", "You have exceeded your maximum of %d pending snapshots.", q.PendingSnapshots)
	case q.Snapshots > 0 && len(r.sim.store.snapshots)+more > q.Snapshots:
		return refuse("SnapshotLimitExceeded", "You have exceeded your maximum of %d snapshots.", q.Snapshots)
	}
	return nil
}

// checkSnapshot judges one volume for itself.
func (r *request) checkSnapshot(v *Volume) *APIError {
	switch {
	case v.RootOf != "":
		return r.sim.notModelledLocked("action", r.action.name+" of a root disk", "")
	case v.State == stateDeleting:
		return volumeNotFound(v.ID)
	case v.State == stateCreating:
		return refuse("IncorrectState", "The volume '%s' is in the '%s' state.", v.ID, v.State)
	case r.now.Sub(v.LastSnapshot) < time.Duration(r.sim.delays.SnapshotSpacing):
		return refuse("SnapshotCreationPerVolumeRateExceeded",
			"The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.")
	}
	pending := 0
	for _, sn := range r.sim.store.snapshots {
		if sn.State == snapPending && sn.VolumeID == v.ID {
			pending++
		}
	}
	if pending >= volumeTypes[v.Type].pendingSnapshots {
		return refuse("ConcurrentSnapshotLimitExceeded", "Maximum allowed in-progress snapshots for a single volume exceeded.")
	}
	return nil
}

// makeSnapshots copies the content of all volumes at one instant, for which
// the lock is given up. Until the copies are there the snapshots count, but
// nobody sees them; a process killed meanwhile has made none.
func (s *Sim) makeSnapshots(snapshots ...*Snapshot) *APIError {
	volumeOf, before := map[string]string{}, map[*Volume]time.Time{}
	for _, sn := range snapshots {
		s.store.snapshots[sn.ID] = sn
		s.copying[sn.ID] = true
		v := s.store.volumes[sn.VolumeID]
		volumeOf[sn.ID], before[v] = v.ID, v.LastSnapshot
		v.LastSnapshot = sn.Started
	}
	s.mu.Unlock()
	err := s.disks.CreateSnapshots(volumeOf)
	s.mu.Lock()
	for _, sn := range snapshots {
		delete(s.copying, sn.ID)
		if err != nil {
			delete(s.store.snapshots, sn.ID)
		} else {
			s.store.putSnapshot(sn)
		}
	}
	for v, last := range before {
		if err != nil {
			v.LastSnapshot = last
		} else if s.store.volumes[v.ID] == v {
			s.store.putVolume(v)
		}
	}
	if err != nil {
		return internalError(err)
	}
	return nil
}

// snapshot is the snapshot of an id, or the refusal EC2 has for it.
func (s *Sim) snapshot(id string) (*Snapshot, *APIError) {
	if err := snapshotIDs.check(id); err != nil {
		return nil, err
	}
	sn := s.store.snapshots[id]
	if sn == nil || s.copying[id] {
		return nil, snapshotNotFound(id)
	}
	return sn, nil
}

func (s *Sim) wantedSnapshots(ids []string) ([]*Snapshot, *APIError) {
	var out []*Snapshot
	if len(ids) == 0 {
		for id, sn := range s.store.snapshots {
			if !s.copying[id] {
				out = append(out, sn)
			}
		}
		return out, nil
	}
	if err := snapshotIDs.checkAll(ids); err != nil {
		return nil, err
	}
	var missing []string
	for _, id := range ids {
		sn := s.store.snapshots[id]
		if sn == nil || s.copying[id] {
			missing = append(missing, id)
		} else if !slices.Contains(out, sn) {
			out = append(out, sn)
		}
	}
	if missing != nil {
		return nil, snapshotNotFound(missing...)
	}
	return out, nil
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSnapshots.html
func describeSnapshots(r *request) (stampable, *APIError) {
	ids := r.list("SnapshotId")
	filters, err := r.filters()
	if err != nil {
		return nil, err
	}
	snapshots, err := r.sim.wantedSnapshots(ids)
	if err != nil {
		return nil, err
	}
	if err := r.allow(anything()); err != nil {
		return nil, err
	}
	// every snapshot here is the account's own, and restorable by it alone
	if !r.sim.ours(r.list("Owner")) || !r.sim.ours(r.list("RestorableBy")) {
		snapshots = nil
	}
	snapshots = slices.DeleteFunc(snapshots, func(sn *Snapshot) bool { return !matchAll(filters, r.sim.snapshotFact(sn)) })
	snapshots, next, err := page(r, snapshots, func(sn *Snapshot) string { return sn.ID }, 1000, ids, "snapshotIds")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	ans := &snapshotsAnswer{NextToken: next}
	for _, sn := range snapshots {
		ans.Snapshots.Items = append(ans.Snapshots.Items, r.sim.snapshotXML(sn))
	}
	return ans, nil
}

// ours tells whether a list of accounts has the account in it, or is empty.
func (s *Sim) ours(accounts []string) bool {
	return len(accounts) == 0 || slices.Contains(accounts, "self") || slices.Contains(accounts, s.cfg.Account)
}

func (s *Sim) snapshotFact(sn *Snapshot) func(name string) []string {
	return func(name string) []string {
		switch name {
		case "description":
			return []string{sn.Description}
		case "encrypted":
			return []string{strconv.FormatBool(sn.Encrypted)}
		case "owner-id":
			return []string{s.cfg.Account}
		case "progress":
			return []string{s.progress(sn)}
		case "snapshot-id":
			return []string{sn.ID}
		case "start-time":
			return []string{wireTime(sn.Started)}
		case "status":
			return []string{sn.State}
		case "storage-tier":
			return []string{storageTier}
		case "volume-id":
			return []string{sn.VolumeID}
		case "volume-size":
			return []string{strconv.Itoa(int(sn.SizeGiB))}
		}
		return tagFact(sn.Tags, name)
	}
}

// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteSnapshot.html
func deleteSnapshot(r *request) (stampable, *APIError) {
	id := r.must("SnapshotId")
	if err := r.err(); err != nil {
		return nil, err
	}
	sn, err := r.sim.snapshot(id)
	if err != nil {
		return nil, err
	}
	if err := r.allow(r.sim.snapshotResource(sn)); err != nil {
		return nil, err
	}
	if err := checkUnlocked(sn, r.now); err != nil {
		return nil, err
	}
	if err := checkNoFastRestore(sn); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	r.sim.store.dropSnapshot(id)
	if err := r.sim.store.commit(); err != nil {
		return nil, internalError(err)
	}
	// the record goes first: a file without record is cleared at the next start
	if err := r.sim.disks.DeleteSnapshot(id); err != nil {
		r.sim.cfg.Log.Error(err, "disk not deleted", "snapshotID", id)
	}
	return done(), nil
}
