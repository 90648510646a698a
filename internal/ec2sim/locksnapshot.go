package ec2sim

import (
	"time"
)

func lockActions() []action {
	return []action{{
		name:   "LockSnapshot",
		handle: lockSnapshot,
		params: []string{"SnapshotId", "LockMode", "LockDuration", "ExpirationDate", "CoolOffPeriod"},
		bucket: bucketMutate,
	}, {
		name:   "UnlockSnapshot",
		handle: unlockSnapshot,
		params: []string{"SnapshotId"},
		bucket: bucketMutate,
	}, {
		name:    "DescribeLockedSnapshots",
		handle:  describeLocks,
		params:  params([]string{"SnapshotId.N"}, filterParam, paging),
		filters: []string{"lock-state"},
		bucket:  bucketDescribe,
	}}
}

// Bounds of a lock, in days and hours.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LockSnapshot.html
const (
	maxLockDays     = 36500
	maxCoolOffHours = 72
	day             = 24 * time.Hour
)

type lockXML struct {
	SnapshotID  string  `xml:"snapshotId"`
	State       string  `xml:"lockState"`
	Days        *int32  `xml:"lockDuration"`
	CoolOff     *int32  `xml:"coolOffPeriod"`
	CoolOffEnds *string `xml:"coolOffPeriodExpiresOn"`
	Created     string  `xml:"lockCreatedOn"`
	Starts      *string `xml:"lockDurationStartTime"`
	Expires     *string `xml:"lockExpiresOn"`
}

type lockAnswer struct {
	answer
	lockXML
}

// lockedXML is a lock in a list, with the snapshot's owner.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LockedSnapshotsInfo.html
type lockedXML struct {
	lockXML
	OwnerID string `xml:"ownerId"`
}

type locksAnswer struct {
	answer
	Snapshots set[lockedXML] `xml:"snapshotSet"`
	NextToken *string        `xml:"nextToken"`
}

func (l *Lock) xml(id string, now time.Time) lockXML {
	return lockXML{
		SnapshotID: id, State: l.state(now), Days: ptr(l.Days), CoolOff: ptr(l.CoolOffHours), CoolOffEnds: ptr(wireTime(l.CoolOffEnds)),
		Created: wireTime(l.Created), Starts: ptr(wireTime(l.Starts)), Expires: ptr(wireTime(l.Expires)),
	}
}

// lockSnapshot locks a snapshot, or changes its lock. While the snapshot is
// pending a duration has not begun, so that the lock has no end yet.
// https://docs.aws.amazon.com/ebs/latest/userguide/snapshot-lock-considerations.html
func lockSnapshot(r *request) (stampable, *APIError) {
	id := r.must("SnapshotId")
	lock, err := r.wantedLock()
	if err != nil {
		return nil, err
	}
	sn, err := r.sim.snapshot(id)
	if err != nil {
		return nil, err
	}
	if err := r.allow(r.sim.snapshotResource(sn)); err != nil {
		return nil, err
	}
	if sn.State == snapCompleted {
		lock.start(r.now)
	}
	if err := checkRelock(sn, lock, r.now); err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	sn.Lock = lock
	r.sim.store.putSnapshot(sn)
	return &lockAnswer{lockXML: lock.xml(id, r.now)}, nil
}

type unlockAnswer struct {
	answer
	SnapshotID string `xml:"snapshotId"`
}

// unlockSnapshot takes a lock away, unless it is one of compliance that has
// cooled off.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_UnlockSnapshot.html
func unlockSnapshot(r *request) (stampable, *APIError) {
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
	switch {
	case sn.Lock == nil || sn.Lock.state(r.now) == lockExpired:
		return nil, refuse("IncorrectState", "The snapshot '%s' is not locked.", id)
	case sn.Lock.state(r.now) == lockCompliance:
		return nil, refuse("OperationNotPermitted", "Snapshot '%s' is locked in compliance mode and cannot be unlocked.", id)
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	sn.Lock = nil
	r.sim.store.putSnapshot(sn)
	return &unlockAnswer{SnapshotID: id}, nil
}

// describeLocks shows the newest lock of each snapshot that has one, expired
// ones too; snapshots that were never locked are left out.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeLockedSnapshots.html
func describeLocks(r *request) (stampable, *APIError) {
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
	var found []lockedXML
	for _, sn := range snapshots {
		if sn.Lock == nil {
			continue
		}
		x := lockedXML{sn.Lock.xml(sn.ID, r.now), r.sim.cfg.Account}
		if matchAll(filters, func(string) []string { return []string{x.State} }) {
			found = append(found, x)
		}
	}
	found, next, err := page(r, found, func(x lockedXML) string { return x.SnapshotID }, 1000, ids, "snapshotIds")
	if err != nil {
		return nil, err
	}
	if r.dryRun() {
		return nil, errDryRun
	}
	return &locksAnswer{Snapshots: set[lockedXML]{found}, NextToken: next}, nil
}

// wantedLock is the lock that the parameters ask for, checked.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LockSnapshot.html
func (r *request) wantedLock() (*Lock, *APIError) {
	lock := &Lock{Mode: r.must("LockMode"), Created: r.now}
	days, daysGiven := r.number("LockDuration")
	hours, cooling := r.number("CoolOffPeriod")
	if err := r.err(); err != nil {
		return nil, err
	}
	switch {
	case lock.Mode != lockGovernance && lock.Mode != lockCompliance:
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter lockMode is invalid. Expected: 'governance' or 'compliance'.", lock.Mode)
	case daysGiven == r.has("ExpirationDate"):
		return nil, refuse("InvalidParameterCombination", "Exactly one of lockDuration and expirationDate must be specified.")
	case daysGiven && (days < 1 || days > maxLockDays):
		return nil, refuse("InvalidParameterValue", "Value (%d) for parameter lockDuration is invalid; it must be between 1 and %d days.", days, maxLockDays)
	case cooling && lock.Mode == lockGovernance:
		return nil, refuse("InvalidParameterCombination", "The parameter coolOffPeriod cannot be used with lock mode governance.")
	case cooling && (hours < 1 || hours > maxCoolOffHours):
		return nil, refuse("InvalidParameterValue", "Value (%d) for parameter coolOffPeriod is invalid; it must be between 1 and %d hours.", hours, maxCoolOffHours)
	}
	if cooling {
		lock.CoolOffHours, lock.CoolOffEnds = hours, r.now.Add(time.Duration(hours)*time.Hour)
	}
	if daysGiven {
		lock.Days = days
		return lock, nil
	}
	end, err := time.Parse(time.RFC3339, r.str("ExpirationDate"))
	if err != nil || end.Sub(r.now) < day || end.Sub(r.now) > maxLockDays*day {
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter expirationDate is invalid; it must be between 1 and %d days ahead.", r.str("ExpirationDate"), maxLockDays)
	}
	lock.Expires = end.UTC()
	return lock, nil
}

// checkRelock judges a change of a lock: a compliance lock that has cooled off
// only gets longer.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LockSnapshot.html
func checkRelock(sn *Snapshot, lock *Lock, now time.Time) *APIError {
	old := sn.Lock
	if old == nil || old.state(now) != lockCompliance {
		return nil
	}
	switch {
	case lock.Mode != lockCompliance:
		return refuse("InvalidParameterValue", "Snapshot '%s' is locked in compliance mode, which cannot be changed.", sn.ID)
	case lock.CoolOffHours != 0:
		return refuse("InvalidParameterCombination", "Snapshot '%s' is locked in compliance mode; coolOffPeriod cannot be specified.", sn.ID)
	case lock.endsBefore(old):
		return refuse("InvalidParameterValue", "Snapshot '%s' is locked in compliance mode; the lock can only be extended.", sn.ID)
	}
	return nil
}

// endsBefore compares ends, or durations that have not begun. Between an end
// and a duration that has not begun the duration counts as the longer one.
func (l *Lock) endsBefore(old *Lock) bool {
	switch {
	case l.Expires.IsZero() && old.Expires.IsZero():
		return l.Days < old.Days
	case l.Expires.IsZero():
		return false
	case old.Expires.IsZero():
		return true
	}
	return l.Expires.Before(old.Expires)
}

// start has the days count from a time on.
func (l *Lock) start(at time.Time) {
	l.Starts = at
	if l.Days > 0 {
		l.Expires = at.Add(time.Duration(l.Days) * day)
	}
}

// startLock has the lock of a snapshot that has just been completed begin.
func (sn *Snapshot) startLock() {
	if sn.Lock != nil {
		sn.Lock.start(sn.Completed)
	}
}

// state is the lock's state at a time.
// https://docs.aws.amazon.com/ebs/latest/userguide/snapshot-lock-concepts.html
func (l *Lock) state(now time.Time) string {
	switch {
	case !l.Expires.IsZero() && !l.Expires.After(now):
		return lockExpired
	case l.Mode == lockCompliance && l.CoolOffEnds.After(now):
		return lockCoolOff
	}
	return l.Mode
}

// checkUnlocked keeps a locked snapshot from being deleted, in the cooling-off
// period as well.
func checkUnlocked(sn *Snapshot, now time.Time) *APIError {
	if sn.Lock == nil || sn.Lock.state(now) == lockExpired {
		return nil
	}
	return refuse("OperationNotPermitted", "The snapshot %s is locked (%s) and cannot be deleted.", sn.ID, sn.Lock.state(now))
}
