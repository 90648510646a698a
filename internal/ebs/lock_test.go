package ebs

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestSnapshotLockCheck(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		why   string
		lock  SnapshotLock
		wrong string
	}{
		"governance":         {"a day", SnapshotLock{Mode: LockGovernance, Days: 1}, ""},
		"compliance":         {"100 years, three days to change it", SnapshotLock{Mode: LockCompliance, Days: 36500, CoolOffHours: 72}, ""},
		"no cooling off":     {"is optional", SnapshotLock{Mode: LockCompliance, Days: 7}, ""},
		"until":              {"a day ahead is the least", SnapshotLock{Mode: LockGovernance, Until: now.Add(24 * time.Hour)}, ""},
		"mode":               {"the modes are named", SnapshotLock{Mode: "strict", Days: 1}, "governance and compliance"},
		"no mode":            {"EC2 has no default", SnapshotLock{Days: 1}, "governance and compliance"},
		"no end":             {"one of two", SnapshotLock{Mode: LockGovernance}, "needs a duration"},
		"two ends":           {"one of two", SnapshotLock{Mode: LockGovernance, Days: 1, Until: now.AddDate(1, 0, 0)}, "not both"},
		"too long":           {"the bound is told", SnapshotLock{Mode: LockGovernance, Days: 36501}, "1 to 36500"},
		"negative":           {"the bound is told", SnapshotLock{Mode: LockGovernance, Days: -1}, "1 to 36500"},
		"governance cools":   {"it can be changed anyway", SnapshotLock{Mode: LockGovernance, Days: 1, CoolOffHours: 1}, "only compliance"},
		"cools too long":     {"the bound is told", SnapshotLock{Mode: LockCompliance, Days: 9, CoolOffHours: 73}, "1 to 72"},
		"cools negative":     {"the bound is told", SnapshotLock{Mode: LockCompliance, Days: 9, CoolOffHours: -1}, "1 to 72"},
		"until the past":     {"the time is told", SnapshotLock{Mode: LockGovernance, Until: now.Add(-time.Hour)}, "2026-06-01T11:00:00Z"},
		"until this evening": {"a day is the least", SnapshotLock{Mode: LockGovernance, Until: now.Add(8 * time.Hour)}, "1 to 36500"},
		"until too late":     {"100 years are the most", SnapshotLock{Mode: LockGovernance, Until: now.AddDate(101, 0, 0)}, "1 to 36500"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.lock.Check()
			if err == nil {
				err = tc.lock.CheckEnd(now)
			}
			if tc.wrong == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.why, err)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: %v, want an error with %q", tc.why, err, tc.wrong)
			}
		})
	}
}
