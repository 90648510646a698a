package ec2sim_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

type lockChange = func(*ec2.LockSnapshotInput)

// lock locks a snapshot in governance mode, unless a change says otherwise.
func (r *region) lock(snapshot string, change ...lockChange) error {
	_, err := r.locked(snapshot, change...)
	return err
}

func (r *region) locked(snapshot string, change ...lockChange) (*ec2.LockSnapshotOutput, error) {
	in := &ec2.LockSnapshotInput{SnapshotId: &snapshot, LockMode: types.LockModeGovernance}
	for _, c := range change {
		c(in)
	}
	return r.LockSnapshot(r.t.Context(), in)
}

func days(n int32) lockChange             { return func(i *ec2.LockSnapshotInput) { i.LockDuration = &n } }
func until(at time.Time) lockChange       { return func(i *ec2.LockSnapshotInput) { i.ExpirationDate = &at } }
func compliance(i *ec2.LockSnapshotInput) { i.LockMode = types.LockModeCompliance }
func coolOff(hours int32) lockChange {
	return func(i *ec2.LockSnapshotInput) { i.CoolOffPeriod = &hours }
}

func TestLockRules(t *testing.T) {
	rows := map[string]struct {
		change []lockChange
		code   string
	}{
		"a day":                       {[]lockChange{days(1)}, ""},
		"a hundred years":             {[]lockChange{days(36500)}, ""},
		"no day":                      {[]lockChange{days(0)}, "InvalidParameterValue"},
		"longer than a hundred years": {[]lockChange{days(36501)}, "InvalidParameterValue"},
		"no end":                      {nil, "InvalidParameterCombination"},
		"two ends":                    {[]lockChange{days(1), until(start.AddDate(0, 1, 0))}, "InvalidParameterCombination"},
		"till a date":                 {[]lockChange{until(start.AddDate(0, 1, 0))}, ""},
		"till a date of the past":     {[]lockChange{until(start)}, "InvalidParameterValue"},
		"governance cools off":        {[]lockChange{days(1), coolOff(1)}, "InvalidParameterCombination"},
		"72 hours":                    {[]lockChange{days(9), compliance, coolOff(72)}, ""},
		"73 hours":                    {[]lockChange{days(9), compliance, coolOff(73)}, "InvalidParameterValue"},
		"no hour":                     {[]lockChange{days(9), compliance, coolOff(0)}, "InvalidParameterValue"},
		"another mode":                {[]lockChange{days(9), func(i *ec2.LockSnapshotInput) { i.LockMode = "strict" }}, "InvalidParameterValue"},
		"snapshot unknown":            {[]lockChange{days(9), func(i *ec2.LockSnapshotInput) { i.SnapshotId = aws.String("snap-00000000000000000") }}, "InvalidSnapshot.NotFound"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			snap := r.newSnapshot(r.newVolume())
			wantCode(t, r.lock(snap, row.change...), row.code)
			if sn, _ := r.Snapshot(snap); (sn.Lock != nil) != (row.code == "") {
				t.Errorf("lock %+v", sn.Lock)
			}
		})
	}
}

// TestLockKeepsTheSnapshot: till it expires.
func TestLockKeepsTheSnapshot(t *testing.T) {
	r := newRegion(t)
	snap := r.newSnapshot(r.newVolume())
	at := r.clock.Now()
	out, err := r.locked(snap, days(2))
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, []any{types.LockStateGovernance, int32(2), at, at, at.AddDate(0, 0, 2)},
		[]any{out.LockState, *out.LockDuration, out.LockCreatedOn.UTC(), out.LockDurationStartTime.UTC(), out.LockExpiresOn.UTC()})
	r.pass(48*time.Hour - time.Second)
	wantCode(t, r.deleteSnapshot(snap), "OperationNotPermitted")
	r.pass(time.Second)
	wantCode(t, r.deleteSnapshot(snap), "")
}

// TestLockOfAPendingSnapshot: a duration begins when the snapshot is completed.
func TestLockOfAPendingSnapshot(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	r.SetDelays(ec2sim.Delays{Snapshot: ec2sim.Duration(time.Hour)})
	snap := r.pending(vol)
	out, err := r.locked(snap, days(1))
	if err != nil || out.LockDurationStartTime != nil || out.LockExpiresOn != nil || out.LockState != types.LockStateGovernance {
		t.Fatalf("%v %+v, want a lock without begin and end", err, out)
	}
	wantCode(t, r.deleteSnapshot(snap), "OperationNotPermitted")
	r.pass(time.Hour + 24*time.Hour - time.Second)
	wantCode(t, r.deleteSnapshot(snap), "OperationNotPermitted")
	r.pass(time.Second)
	wantCode(t, r.deleteSnapshot(snap), "")
}

// TestComplianceLockOfAPendingSnapshot: days that have not begun to count are
// compared as days, and end later than any date.
func TestComplianceLockOfAPendingSnapshot(t *testing.T) {
	r := newRegion(t)
	vol := r.newVolume()
	r.SetDelays(ec2sim.Delays{Snapshot: ec2sim.Duration(time.Hour)})
	snap := r.pending(vol)
	wantCode(t, r.lock(snap, compliance, until(r.clock.Now().AddDate(0, 0, 9))), "")
	wantCode(t, r.lock(snap, compliance, days(10)), "")
	wantCode(t, r.lock(snap, compliance, days(9)), "InvalidParameterValue")
	wantCode(t, r.lock(snap, compliance, until(r.clock.Now().AddDate(1, 0, 0))), "InvalidParameterValue")
	wantCode(t, r.lock(snap, compliance, days(11)), "")
	end := r.clock.Now().Add(time.Hour).AddDate(0, 0, 11)
	r.pass(2 * time.Hour)
	if sn, _ := r.Snapshot(snap); !sn.Lock.Expires.Equal(end) {
		t.Errorf("it ends at %v, want %v", sn.Lock.Expires, end)
	}
}

// TestComplianceLock: it can be changed while it cools off, and only be
// extended afterwards.
func TestComplianceLock(t *testing.T) {
	r := newRegion(t)
	snap := r.newSnapshot(r.newVolume())
	wantCode(t, r.lock(snap, days(30)), "")
	out, err := r.locked(snap, compliance, days(10), coolOff(2))
	if err != nil || out.LockState != types.LockStateComplianceCooloff || !out.CoolOffPeriodExpiresOn.Equal(r.clock.Now().Add(2*time.Hour)) {
		t.Fatalf("%v %+v, want it to cool off", err, out)
	}
	wantCode(t, r.deleteSnapshot(snap), "OperationNotPermitted")
	wantCode(t, r.lock(snap, days(1)), "")
	out, err = r.locked(snap, compliance, days(10))
	if err != nil || out.LockState != types.LockStateCompliance {
		t.Fatalf("%v %+v, want it locked at once", err, out)
	}
	wantCode(t, r.lock(snap, days(20)), "InvalidParameterValue")
	wantCode(t, r.lock(snap, compliance, days(9)), "InvalidParameterValue")
	wantCode(t, r.lock(snap, compliance, days(20), coolOff(1)), "InvalidParameterCombination")
	wantCode(t, r.lock(snap, compliance, until(r.clock.Now().AddDate(0, 0, 9))), "InvalidParameterValue")
	wantCode(t, r.lock(snap, compliance, until(r.clock.Now().AddDate(0, 0, 11))), "")
	r.pass(11 * 24 * time.Hour)
	wantCode(t, r.lock(snap, days(1)), "") // expired: a new one
}

// TestUnlock: governance, and compliance while it cools off.
func TestUnlock(t *testing.T) {
	r := newRegion(t)
	snap := r.newSnapshot(r.newVolume())
	unlock := func() error {
		_, err := r.UnlockSnapshot(t.Context(), &ec2.UnlockSnapshotInput{SnapshotId: &snap})
		return err
	}
	wantCode(t, unlock(), "IncorrectState")
	wantCode(t, r.lock(snap, days(30)), "")
	wantCode(t, unlock(), "")
	wantCode(t, unlock(), "IncorrectState")
	wantCode(t, r.lock(snap, compliance, days(30), coolOff(1)), "")
	wantCode(t, unlock(), "")
	wantCode(t, r.lock(snap, compliance, days(30), coolOff(1)), "")
	r.pass(time.Hour)
	wantCode(t, unlock(), "OperationNotPermitted")
	r.pass(30 * 24 * time.Hour)
	wantCode(t, unlock(), "IncorrectState")
	wantCode(t, r.deleteSnapshot(snap), "")
	wantCode(t, unlock(), "InvalidSnapshot.NotFound")
}

// TestDescribeLockedSnapshots: locks, also those that are over, and no others.
func TestDescribeLockedSnapshots(t *testing.T) {
	r := newRegion(t)
	short, long, free := r.newSnapshot(r.newVolume()), r.newSnapshot(r.newVolume()), r.newSnapshot(r.newVolume())
	at := r.clock.Now()
	wantCode(t, r.lock(short, days(1)), "")
	wantCode(t, r.lock(long, compliance, days(9), coolOff(1)), "")
	r.pass(25 * time.Hour)
	describe := func(state string, ids ...string) map[string]types.LockedSnapshotsInfo {
		t.Helper()
		in := &ec2.DescribeLockedSnapshotsInput{SnapshotIds: ids}
		if state != "" {
			in.Filters = []types.Filter{{Name: aws.String("lock-state"), Values: []string{state}}}
		}
		out, err := r.DescribeLockedSnapshots(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]types.LockedSnapshotsInfo{}
		for _, l := range out.Snapshots {
			found[*l.SnapshotId] = l
		}
		return found
	}
	all := describe("")
	if len(all) != 2 || all[short].LockState != types.LockStateExpired || all[long].LockState != types.LockStateCompliance || !all[long].LockExpiresOn.Equal(at.AddDate(0, 0, 9)) {
		t.Errorf("locks %+v, want an expired one of %s and one of %s", all, short, long)
	}
	if got := describe("compliance"); len(got) != 1 || *got[long].SnapshotId != long {
		t.Errorf("by state: %+v, want %s", got, long)
	}
	if got := describe("", short, free); len(got) != 1 || *got[short].SnapshotId != short {
		t.Errorf("by id: %+v, want %s alone", got, short)
	}
	_, err := r.DescribeLockedSnapshots(t.Context(), &ec2.DescribeLockedSnapshotsInput{SnapshotIds: []string{"snap-00000000000000000"}})
	wantCode(t, err, "InvalidSnapshot.NotFound")
}
