package ec2_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// extraRequest asks for fast restore in both zones and a lock of nine days.
func extraRequest(name string, of ebs.VolumeID) ebs.SnapshotRequest {
	want := snapshotRequest(name, of)
	want.FastRestoreZones = []string{zoneA, zoneB}
	want.Lock = &ebs.SnapshotLock{Mode: ebs.LockGovernance, Days: 9}
	return want
}

// extras are the zones of a snapshot's fast restore and the mode of its lock.
func (r *region) extras(id ebs.SnapshotID) (zones []string, lock string) {
	r.t.Helper()
	sn, ok := r.Snapshot(string(id))
	if !ok {
		r.t.Fatalf("no snapshot %s", id)
	}
	for _, f := range sn.FastRestores {
		zones = append(zones, f.Zone)
	}
	slices.Sort(zones)
	if sn.Lock != nil {
		lock = sn.Lock.Mode
	}
	return zones, lock
}

func (r *region) wantExtras(id ebs.SnapshotID, wantZones []string, wantLock string) {
	r.t.Helper()
	zones, lock := r.extras(id)
	if diff := cmp.Diff(wantZones, zones); diff != "" || lock != wantLock {
		r.t.Errorf("lock %q, want %q; zones of fast restore (-want +got)\n%s", lock, wantLock, diff)
	}
}

// A new snapshot gets all at once, pending as it is, and a repeat changes nothing.
func TestEnsureSnapshotWithExtras(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	client := r.client()
	for range 3 {
		snap, err := client.EnsureSnapshot(t.Context(), extraRequest("snap-1", vol.ID))
		if err != nil {
			t.Fatal(err)
		}
		r.wantExtras(snap.ID, []string{zoneA, zoneB}, "governance")
		r.pass(time.Minute)
	}
	if n := len(r.Snapshots()); n != 1 {
		t.Errorf("%d snapshots, want 1", n)
	}
	for action, want := range map[string]int{"CreateSnapshot": 1, "EnableFastSnapshotRestores": 1, "LockSnapshot": 1, "DescribeAvailabilityZones": 1} {
		if n := len(r.callsOf(action)); n != want {
			t.Errorf("%d calls of %s, want %d", n, action, want)
		}
	}
}

// What is wrong is told before a snapshot is taken, and the zones are asked for
// once, not with each try.
func TestEnsureSnapshotJudgesExtrasFirst(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	client := r.client()
	for name, tc := range map[string]struct {
		why    string
		change func(*ebs.SnapshotRequest)
		texts  []string
	}{
		"zone":     {"the region's zones are named", func(w *ebs.SnapshotRequest) { w.FastRestoreZones = []string{zoneA, "us-east-1z"} }, []string{"us-east-1z", zoneA + ", " + zoneB}},
		"the past": {"EC2 would refuse it once the snapshot is there", func(w *ebs.SnapshotRequest) { w.Lock.Days, w.Lock.Until = 0, r.clock.Now().Add(-time.Hour) }, []string{"expiration date"}},
		"today":    {"a day is the least", func(w *ebs.SnapshotRequest) { w.Lock.Days, w.Lock.Until = 0, r.clock.Now().Add(time.Hour) }, []string{"1 to 36500 days"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := extraRequest("snap-1", vol.ID)
			tc.change(&want)
			for range 3 {
				_, err := client.EnsureSnapshot(t.Context(), want)
				if !errors.Is(err, ebs.ErrInvalid) {
					t.Fatalf("%s: %v, want that it is invalid", tc.why, err)
				}
				for _, text := range tc.texts {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: %q does not name %q", tc.why, err, text)
					}
				}
			}
		})
	}
	if n := len(r.callsOf("CreateSnapshot")); n != 0 {
		t.Errorf("%d CreateSnapshot calls, want none", n)
	}
	if n := len(r.callsOf("DescribeAvailabilityZones")); n != 1 {
		t.Errorf("%d DescribeAvailabilityZones calls, want 1", n)
	}
}

// A zone that is new to the region is found, at the latest a minute later.
func TestZonesAreAskedForAgain(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	client := r.client()
	old := "<DescribeAvailabilityZonesResponse><availabilityZoneInfo><item><zoneName>" + zoneA + "</zoneName><zoneState>available</zoneState></item></availabilityZoneInfo></DescribeAvailabilityZonesResponse>"
	r.intercept(func(c call) *reply {
		if c.action == "DescribeAvailabilityZones" {
			return &reply{200, old}
		}
		return nil
	})
	if _, err := client.EnsureSnapshot(t.Context(), extraRequest("snap-1", vol.ID)); !errors.Is(err, ebs.ErrInvalid) {
		t.Fatalf("%v, want that %s is not known", err, zoneB)
	}
	r.intercept(nil)
	r.pass(2 * time.Minute)
	if _, err := client.EnsureSnapshot(t.Context(), extraRequest("snap-1", vol.ID)); err != nil {
		t.Errorf("after two minutes: %v", err)
	}
}

// DRIVER rule 12a: the process dies, or EC2 refuses, between the snapshot and
// what it is to have. The retry adds what is missing to the one snapshot.
func TestMissingExtrasAreAddedToTheOneSnapshot(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		fault ec2sim.Fault
		zones []string // after the first try
		lock  string
	}{
		"fast restore refused": {"a quota that is cured later", ec2sim.Fault{Action: "EnableFastSnapshotRestores", Code: "FastSnapshotRestoreLimitExceeded"}, nil, "governance"},
		"lock refused":         {"a permission that comes later", ec2sim.Fault{Action: "LockSnapshot", Code: "UnauthorizedOperation"}, []string{zoneA, zoneB}, ""},
		"answers lost":         {"the look tells that it is there", ec2sim.Fault{Action: "LockSnapshot", LostAnswer: ec2sim.LostAfter, Count: 2}, []string{zoneA, zoneB}, "governance"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			vol := r.volume("pvc-1")
			if err := r.Inject(tc.fault); err != nil {
				t.Fatal(err)
			}
			if _, err := r.client().EnsureSnapshot(t.Context(), extraRequest("snap-1", vol.ID)); !errors.Is(err, ebs.ErrMaybeAccepted) {
				t.Fatalf("%s: %v, want that the snapshot was accepted", tc.why, err)
			}
			all := r.Snapshots()
			if len(all) != 1 {
				t.Fatalf("%s: snapshots %+v, want one: it is neither deleted nor doubled", tc.why, all)
			}
			r.wantExtras(ebs.SnapshotID(all[0].ID), tc.zones, tc.lock)
			r.ClearFaults()
			r.pass(time.Minute)
			snap, err := r.client().EnsureSnapshot(t.Context(), extraRequest("snap-1", vol.ID))
			if err != nil || string(snap.ID) != all[0].ID || len(r.Snapshots()) != 1 {
				t.Fatalf("%s: %+v, %v; want %s alone", tc.why, snap, err, all[0].ID)
			}
			r.wantExtras(snap.ID, []string{zoneA, zoneB}, "governance")
		})
	}
}

// EC2 tells what it refuses for single zones in an answer that is a success.
func TestFastRestoreRefusedInASuccess(t *testing.T) {
	r := newRegion(t)
	one, two := r.volume("pvc-1"), r.volume("pvc-2")
	r.SetQuotas(ec2sim.Quotas{FastRestores: 1})
	if _, err := r.client().EnsureSnapshot(t.Context(), extraRequest("snap-1", one.ID)); err != nil {
		t.Fatal(err)
	}
	_, err := r.client().EnsureSnapshot(t.Context(), extraRequest("snap-2", two.ID))
	if !errors.Is(err, ebs.ErrMaybeAccepted) || !errors.Is(err, ebs.ErrLimitExceeded) || !strings.Contains(err.Error(), "FastSnapshotRestoreLimitExceeded") {
		t.Errorf("%v, want the quota, after the snapshot was accepted", err)
	}
	r.SetQuotas(ec2sim.Quotas{FastRestores: 2})
	snap, err := r.client().EnsureSnapshot(t.Context(), extraRequest("snap-2", two.ID))
	if err != nil {
		t.Fatal(err)
	}
	r.wantExtras(snap.ID, []string{zoneA, zoneB}, "governance")
}

// A lock that an operator has changed, or that is over, is not made again.
func TestALockStaysAsItIs(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	want := extraRequest("snap-1", vol.ID)
	want.Lock = &ebs.SnapshotLock{Mode: ebs.LockGovernance, Until: r.clock.Now().Add(25 * time.Hour)}
	snap, err := r.client().EnsureSnapshot(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	r.pass(26 * time.Hour)
	if _, err := r.client().EnsureSnapshot(t.Context(), want); err != nil {
		t.Errorf("a lock that is over: %v", err)
	}
	want.Lock = &ebs.SnapshotLock{Mode: ebs.LockCompliance, Days: 1}
	if _, err := r.client().EnsureSnapshot(t.Context(), want); err != nil {
		t.Error(err)
	}
	if n := len(r.callsOf("LockSnapshot")); n != 1 {
		t.Errorf("%d LockSnapshot calls, want 1", n)
	}
	r.wantExtras(snap.ID, []string{zoneA, zoneB}, "governance")
}

// DRIVER rule 12a: fast restore is disabled first, then waited for.
func TestDeleteSnapshotWithFastRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		before func(r *region)
	}{
		"on": {"disabled, waited for, deleted", func(*region) {}},
		"lost": {"the SDK's repeat meets one that is being disabled", func(r *region) {
			r.inject(ec2sim.Fault{Action: "DisableFastSnapshotRestores", LostAnswer: ec2sim.LostAfter})
		}},
		"optimizing": {"before it is on it is on its way", func(r *region) { r.SetDelays(ec2sim.Delays{FastRestoreOptimize: ec2sim.Duration(time.Hour)}) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			tc.before(r)
			want := extraRequest("snap-1", r.volume("pvc-1").ID)
			want.Lock = nil
			snap, err := r.client().EnsureSnapshot(t.Context(), want)
			if err != nil {
				t.Fatal(err)
			}
			r.pass(time.Minute)
			r.SetDelays(ec2sim.Delays{FastRestoreDisable: ec2sim.Duration(8 * time.Second)})
			if err := r.client().DeleteSnapshot(t.Context(), snap.ID); err != nil {
				t.Errorf("%s: %v", tc.why, err)
			}
			if n := len(r.Snapshots()); n != 0 {
				t.Errorf("%s: %d snapshots are left", tc.why, n)
			}
		})
	}
}

// The caller's time is over while fast restore goes off: the next call goes on from there.
func TestDeleteSnapshotGoesOnWhereItWas(t *testing.T) {
	r := newRegionInRealTime(t)
	want := extraRequest("snap-1", r.volume("pvc-1").ID)
	want.Lock = nil
	snap, err := r.client().EnsureSnapshot(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	r.SetDelays(ec2sim.Delays{FastRestoreDisable: ec2sim.Duration(3 * time.Second)})
	if err := r.client().DeleteSnapshot(soon(t, 1500*time.Millisecond), snap.ID); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Errorf("%v, want that something is under way", err)
	}
	if err := r.client().DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Error(err)
	}
	if n := len(r.Snapshots()); n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
	if n := len(r.callsOf("DisableFastSnapshotRestores")); n != 1 {
		t.Errorf("%d DisableFastSnapshotRestores calls, want 1", n)
	}
}

// A locked snapshot cannot be deleted: the error names the lock and its end, and
// its fast restore stays on. Whatever code EC2 has for it.
func TestDeleteSnapshotThatIsLocked(t *testing.T) {
	for _, code := range []string{"", "InvalidSnapshot.InUse", "SomethingNew"} {
		t.Run(code, func(t *testing.T) {
			r := newRegion(t)
			snap, err := r.client().EnsureSnapshot(t.Context(), extraRequest("snap-1", r.volume("pvc-1").ID))
			if err != nil {
				t.Fatal(err)
			}
			wantLock := func(text string) {
				t.Helper()
				if code != "" {
					r.inject(ec2sim.Fault{Action: "DeleteSnapshot", Code: code})
				}
				err := r.client().DeleteSnapshot(t.Context(), snap.ID)
				if !errors.Is(err, ebs.ErrInUse) || errors.Is(err, ebs.ErrUnauthorized) || !strings.Contains(err.Error(), "governance") || !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want that a governance lock holds it, %s", err, text)
				}
			}
			wantLock("9 days from its completion")
			done := r.clock.Now().Add(time.Minute)
			r.pass(time.Minute)
			sn, _ := r.Snapshot(string(snap.ID))
			wantLock("until " + sn.Lock.Expires.Format(time.RFC3339))
			if sn.Lock.Expires.After(done.AddDate(0, 0, 9)) {
				t.Fatalf("the lock ends %v", sn.Lock.Expires)
			}
			if n := len(r.callsOf("DisableFastSnapshotRestores")); n != 0 {
				t.Errorf("fast restore of a snapshot that stays was disabled")
			}
			r.pass(10 * 24 * time.Hour)
			if err := r.client().DeleteSnapshot(t.Context(), snap.ID); err != nil || len(r.Snapshots()) != 0 {
				t.Errorf("after the lock's end: %v, %d left", err, len(r.Snapshots()))
			}
		})
	}
}

// An image made of the snapshot keeps it, and its fast restore too.
func TestDeleteSnapshotOfAnImage(t *testing.T) {
	r := newRegion(t)
	want := extraRequest("snap-1", r.volume("pvc-1").ID)
	want.Lock = nil
	snap, err := r.client().EnsureSnapshot(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	r.intercept(func(c call) *reply {
		if c.action == "DeleteSnapshot" {
			return refusal(400, "InvalidSnapshot.InUse", "The snapshot "+string(snap.ID)+" is currently in use by ami-0123456789abcdef0")
		}
		return nil
	})
	if err := r.client().DeleteSnapshot(t.Context(), snap.ID); !errors.Is(err, ebs.ErrInUse) || !strings.Contains(err.Error(), "ami-") {
		t.Errorf("%v, want the image", err)
	}
	if n := len(r.callsOf("DisableFastSnapshotRestores")); n != 0 {
		t.Errorf("fast restore of a snapshot that stays was disabled")
	}
}

func (r *region) inject(f ec2sim.Fault) {
	r.t.Helper()
	if err := r.Inject(f); err != nil {
		r.t.Fatal(err)
	}
}
