package ec2_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func snapshotRequest(name string, of ebs.VolumeID) ebs.SnapshotRequest {
	return ebs.SnapshotRequest{Name: name, Volume: of, Tags: map[string]string{ebs.TagSnapshotName: name, "ebs.csi.aws.com/cluster": "true"}}
}

// snapshot takes a snapshot by another process.
func (r *region) snapshot(name string, of ebs.VolumeID) ebs.Snapshot {
	r.t.Helper()
	snap, err := r.client().EnsureSnapshot(r.t.Context(), snapshotRequest(name, of))
	if err != nil {
		r.t.Fatal(err)
	}
	return snap
}

func TestEnsureSnapshot(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	snap := r.snapshot("snap-1", vol.ID)
	want := ebs.Snapshot{ID: snap.ID, Volume: vol.ID, Size: 10, State: ebs.SnapshotPending, StartTime: snap.StartTime, Tags: snapshotRequest("snap-1", vol.ID).Tags}
	if diff := cmp.Diff(want, snap); diff != "" || snap.StartTime.IsZero() {
		t.Errorf("a new snapshot is pending and not waited for (-want +got)\n%s", diff)
	}
	r.pass(time.Minute)
	if again := r.snapshot("snap-1", vol.ID); again.ID != snap.ID || again.State != ebs.SnapshotCompleted {
		t.Errorf("a repeat gave %+v, want %s, completed", again, snap.ID)
	}
	other := r.volume("pvc-2")
	if _, err := r.client().EnsureSnapshot(t.Context(), snapshotRequest("snap-1", other.ID)); !errors.Is(err, ebs.ErrAlreadyExists) {
		t.Errorf("the name with another volume: %v, want that it exists", err)
	}
	if _, err := r.client().EnsureSnapshot(t.Context(), snapshotRequest("snap-2", "vol-0123456789abcdef0")); !errors.Is(err, ebs.ErrNotFound) {
		t.Errorf("of no volume: %v, want that it is not found", err)
	}
	if n := len(r.Snapshots()); n != 1 {
		t.Errorf("%d snapshots, want 1", n)
	}
}

// DRIVER rule 12: the answer is lost, EC2 knows no token, reads lag.
func TestEnsureSnapshotAfterALostAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		hidden int // look-ups that do not show the snapshot
	}{
		"seen at once": {"the look-up after the lost answer finds it", 0},
		"seen late":    {"a read that lags must not lead to a second one", 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			vol := r.volume("pvc-1")
			if err := r.Inject(ec2sim.Fault{Action: "CreateSnapshot", LostAnswer: ec2sim.LostAfter}); err != nil {
				t.Fatal(err)
			}
			hidden := first(tc.hidden + 1) // the look before the create finds nothing anyway
			r.intercept(func(c call) *reply {
				if c.action == "DescribeSnapshots" && hidden() {
					return &reply{200, "<DescribeSnapshotsResponse><snapshotSet/></DescribeSnapshotsResponse>"}
				}
				return nil
			})
			snap := r.snapshot("snap-1", vol.ID)
			if snapshots := r.Snapshots(); len(snapshots) != 1 || snapshots[0].ID != string(snap.ID) {
				t.Errorf("%s: snapshots %v, answered %s", tc.why, snapshots, snap.ID)
			}
			if n := len(r.callsOf("CreateSnapshot")); n != 1 {
				t.Errorf("%s: %d CreateSnapshot calls, want 1", tc.why, n)
			}
		})
	}
}

// The same, when the request of the lost answer has ended and the process lives on.
func TestEnsureSnapshotAfterALostRequest(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.intercept(func(c call) *reply {
		if c.action == "DescribeSnapshots" {
			return &reply{200, "<DescribeSnapshotsResponse><snapshotSet/></DescribeSnapshotsResponse>"}
		}
		return nil
	})
	if err := r.Inject(ec2sim.Fault{Action: "CreateSnapshot", LostAnswer: ec2sim.LostAfter}); err != nil {
		t.Fatal(err)
	}
	client := r.client()
	if _, err := client.EnsureSnapshot(t.Context(), snapshotRequest("snap-1", vol.ID)); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Fatalf("%v, want that it may have been accepted", err)
	}
	r.intercept(nil)
	if _, err := client.EnsureSnapshot(t.Context(), snapshotRequest("snap-1", vol.ID)); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Snapshots()); n != 1 {
		t.Errorf("%d snapshots, want 1", n)
	}
}

// The same, when EC2's answer did come, and was lost on its way to the sidecar.
func TestEnsureSnapshotRepeatedBeforeItShows(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{}) // nor does EC2's spacing of snapshots keep them apart
	vol := r.volume("pvc-1")
	if err := r.SetReadLag(map[string]ec2sim.Duration{"DescribeSnapshots": ec2sim.Duration(3 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	client := r.client()
	var ids []ebs.SnapshotID
	for range 2 {
		snap, err := client.EnsureSnapshot(t.Context(), snapshotRequest("snap-1", vol.ID))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, snap.ID)
	}
	if n := len(r.Snapshots()); n != 1 || ids[0] != ids[1] {
		t.Errorf("answered %v, %d snapshots, want one and the same", ids, n)
	}
}

// EC2 gives up on a snapshot: it stays, and no other takes its place. Who was
// told its id would never learn another's.
func TestEnsureSnapshotAfterAFailedOne(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	if err := r.Inject(ec2sim.Fault{Action: "CreateSnapshot", Outcome: ec2sim.OutcomeError}); err != nil {
		t.Fatal(err)
	}
	failed := r.snapshot("snap-1", vol.ID)
	r.pass(time.Minute)
	for range 2 {
		if _, err := r.client().EnsureSnapshot(t.Context(), snapshotRequest("snap-1", vol.ID)); !errors.Is(err, ebs.ErrSnapshotFailed) || !strings.Contains(err.Error(), string(failed.ID)) {
			t.Errorf("%v, want that snapshot %s failed", err, failed.ID)
		}
	}
	if all := r.Snapshots(); len(all) != 1 || all[0].ID != string(failed.ID) {
		t.Errorf("snapshots %+v, want %s alone", all, failed.ID)
	}
}

// Two snapshots of one volume are asked for at once: EC2 wants 15 s between them.
func TestEnsureSnapshotSpacesItsTries(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.snapshot("snap-1", vol.ID)
	begun := r.clock.Now()
	r.snapshot("snap-2", vol.ID)
	if took := r.clock.Since(begun); took < 14*time.Second || len(r.callsOf("CreateSnapshot")) > 4 {
		t.Errorf("it took %s and %d CreateSnapshot calls, want the spacing waited out", took, len(r.callsOf("CreateSnapshot")))
	}
	_, err := r.client().EnsureSnapshot(soon(t, 3*time.Second), snapshotRequest("snap-3", vol.ID))
	if !errors.Is(err, ebs.ErrSnapshotRate) {
		t.Errorf("no time to wait: %v, want that the rate is exceeded", err)
	}
}

func TestDeleteSnapshot(t *testing.T) {
	r := newRegion(t)
	snap := r.snapshot("snap-1", r.volume("pvc-1").ID)
	r.pass(time.Minute)
	for _, id := range []ebs.SnapshotID{snap.ID, snap.ID, "snap-0123456789abcdef0", "my-snapshot"} {
		if err := r.client().DeleteSnapshot(t.Context(), id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
	r.FailNext("DeleteSnapshot", "InvalidSnapshot.InUse", 1)
	if err := r.client().DeleteSnapshot(t.Context(), snap.ID); !errors.Is(err, ebs.ErrInUse) {
		t.Errorf("in use by an image: %v", err)
	}
}

func TestListSnapshots(t *testing.T) {
	r := newRegion(t)
	var all []ebs.SnapshotID
	var vol ebs.Volume
	for i := range 7 {
		vol = r.volume(fmt.Sprint("pvc-", i))
		all = append(all, r.snapshot(fmt.Sprint("snap-", i), vol.ID).ID)
	}
	slices.Sort(all)
	list := func(q ebs.SnapshotQuery) ebs.SnapshotPage {
		t.Helper()
		page, err := r.client().ListSnapshots(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for _, entries := range []int32{0, 1, 2, 3, 5, 6, 7, 100} {
		var got []ebs.SnapshotID
		q := ebs.SnapshotQuery{MaxEntries: entries}
		for pages := 0; pages < 10; pages++ {
			page := list(q)
			if entries > 0 && len(page.Snapshots) > int(entries) {
				t.Errorf("%d entries asked for, %d came", entries, len(page.Snapshots))
			}
			for _, s := range page.Snapshots {
				got = append(got, s.ID)
			}
			if q.Token = page.NextToken; q.Token == "" {
				break
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("pages of %d: each snapshot once (-want +got)\n%s", entries, diff)
		}
	}
	for _, c := range r.callsOf("DescribeSnapshots") {
		if c.form.Get("Owner.1") != "self" {
			t.Fatalf("snapshots of every owner are asked for: %v", c.form)
		}
	}
	if page := list(ebs.SnapshotQuery{Volume: vol.ID}); len(page.Snapshots) != 1 || page.Snapshots[0].Volume != vol.ID {
		t.Errorf("of one volume: %+v", page)
	}
	if page := list(ebs.SnapshotQuery{ID: all[0]}); len(page.Snapshots) != 1 || page.Snapshots[0].ID != all[0] {
		t.Errorf("by id: %+v", page)
	}
	for why, q := range map[string]ebs.SnapshotQuery{
		"missing id":            {ID: "snap-0123456789abcdef0"},
		"no snapshot id":        {ID: "my-snapshot"},
		"volume without any":    {Volume: "vol-0123456789abcdef0"},
		"no volume id":          {Volume: "my-volume"},
		"id and another volume": {ID: all[0], Volume: "vol-0123456789abcdef0"},
	} {
		if page := list(q); len(page.Snapshots) != 0 || page.NextToken != "" {
			t.Errorf("%s: %+v, want nothing", why, page)
		}
	}
	for _, token := range []string{"x", "!", strings.Repeat("a", 20)} {
		if _, err := r.client().ListSnapshots(t.Context(), ebs.SnapshotQuery{Token: token}); !errors.Is(err, ebs.ErrInvalidToken) {
			t.Errorf("token %q: %v, want that it is not valid", token, err)
		}
	}
}

// DRIVER rules 5 and 13: restores.
func TestEnsureVolumeFromSnapshot(t *testing.T) {
	r := newRegion(t)
	snap := r.snapshot("snap-1", r.volume("pvc-1").ID)
	restore := func(size ebs.GiB) ebs.VolumeRequest {
		return request("restored", func(w *ebs.VolumeRequest) { w.Snapshot, w.Size = snap.ID, size })
	}
	if _, err := r.client().EnsureVolume(t.Context(), restore(10)); !errors.Is(err, ebs.ErrNotReady) {
		t.Errorf("a pending snapshot: %v, want that it is not ready", err)
	}
	r.pass(time.Minute)
	if _, err := r.client().EnsureVolume(t.Context(), restore(9)); !errors.Is(err, ebs.ErrInvalid) {
		t.Errorf("smaller than the snapshot: %v, want EC2's refusal", err)
	}
	vol, err := r.client().EnsureVolume(t.Context(), restore(12))
	if err != nil || vol.Size != 12 || vol.Snapshot != snap.ID {
		t.Errorf("larger than the snapshot: %+v, %v", vol, err)
	}
	asIs, err := r.client().EnsureVolume(t.Context(), request("as-is", func(w *ebs.VolumeRequest) { w.Snapshot, w.Size = snap.ID, 0 }))
	if err != nil || asIs.Size != 10 {
		t.Errorf("of the snapshot's size: %+v, %v", asIs, err)
	}
	if _, err := r.client().EnsureVolume(t.Context(), request("restored")); !errors.Is(err, ebs.ErrAlreadyExists) {
		t.Errorf("an empty volume of a restore's name: %v, want that it exists", err)
	}
	gone := request("gone", func(w *ebs.VolumeRequest) { w.Snapshot = "snap-0123456789abcdef0" })
	if _, err := r.client().EnsureVolume(t.Context(), gone); !errors.Is(err, ebs.ErrNotFound) {
		t.Errorf("a missing snapshot: %v, want that it is not found", err)
	}
}
