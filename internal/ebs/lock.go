package ebs

import (
	"fmt"
	"time"
)

// LockMode is how firm a snapshot's lock is.
type LockMode string

// The modes of a lock.
const (
	// LockGovernance can be taken away by whoever has the right to.
	LockGovernance LockMode = "governance"
	// LockCompliance can be taken away by nobody once its cooling-off period is over.
	LockCompliance LockMode = "compliance"
)

// Bounds of a lock, see
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LockSnapshot.html
const (
	maxLockDays     = 36500
	maxCoolOffHours = 72
)

// minLock is how far ahead the end of a lock must be: a day is the shortest
// lock that EC2 has.
const minLock = 24 * time.Hour

// SnapshotLock keeps a snapshot from being deleted, for some days or until a time.
type SnapshotLock struct {
	Mode LockMode
	// Days is for how long, from when the snapshot is completed; 0: until Until.
	Days int32
	// Until is when the lock ends; zero: after Days.
	Until time.Time
	// CoolOffHours is for how long a compliance lock can still be changed; 0: not at all.
	CoolOffHours int32
}

// Check says whether EC2 can lock a snapshot so, with what is wrong and what is
// allowed. The time is judged by CheckEnd.
func (l SnapshotLock) Check() error {
	switch {
	case l.Mode != LockGovernance && l.Mode != LockCompliance:
		return fmt.Errorf("%w: lock mode %q: allowed are governance and compliance", ErrInvalid, l.Mode)
	case l.Days != 0 && !l.Until.IsZero():
		return fmt.Errorf("%w: a snapshot's lock has a duration (%d days) or an expiration date (%s), not both", ErrInvalid, l.Days, l.Until.Format(time.RFC3339))
	case l.Days == 0 && l.Until.IsZero():
		return fmt.Errorf("%w: a snapshot's lock needs a duration in days or an expiration date", ErrInvalid)
	case l.Until.IsZero() && (l.Days < 1 || l.Days > maxLockDays):
		return fmt.Errorf("%w: lock duration %d: allowed are 1 to %d days", ErrInvalid, l.Days, maxLockDays)
	case l.CoolOffHours != 0 && l.Mode == LockGovernance:
		return fmt.Errorf("%w: a cooling-off period of %d hours with lock mode governance: only compliance has one", ErrInvalid, l.CoolOffHours)
	case l.CoolOffHours < 0 || l.CoolOffHours > maxCoolOffHours:
		return fmt.Errorf("%w: cooling-off period %d: allowed are 1 to %d hours", ErrInvalid, l.CoolOffHours, maxCoolOffHours)
	}
	return nil
}

// CheckEnd says whether a lock that begins now can end when it is to.
func (l SnapshotLock) CheckEnd(now time.Time) error {
	if l.Until.IsZero() {
		return nil
	}
	if ahead := l.Until.Sub(now); ahead < minLock || ahead > maxLockDays*24*time.Hour {
		return fmt.Errorf("%w: lock expiration date %s: allowed are 1 to %d days from now, %s", ErrInvalid, l.Until.Format(time.RFC3339), maxLockDays, now.UTC().Format(time.RFC3339))
	}
	return nil
}

// Over says whether the lock would have ended by now.
func (l SnapshotLock) Over(now time.Time) bool { return !l.Until.IsZero() && !l.Until.After(now) }
