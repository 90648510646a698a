package ec2_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

func groupRequest(name string, of ...ebs.VolumeID) ebs.GroupRequest {
	return ebs.GroupRequest{Name: name, Volumes: of, Tags: map[string]string{
		ebs.TagManaged: ebs.TagManagedValue, ebs.TagGroupName: name, ebs.TagGroupVolumes: ebs.GroupVolumes(of),
	}}
}

// attached makes a volume and attaches it.
func (r *region) attached(name string, to ebs.InstanceID) ebs.VolumeID {
	r.t.Helper()
	vol := r.volume(name)
	r.attach(vol.ID, to)
	return vol.ID
}

// group takes a group by a process that remembers nothing.
func (r *region) group(name string, of ...ebs.VolumeID) ebs.SnapshotGroup {
	r.t.Helper()
	g, err := r.client().EnsureGroup(r.t.Context(), groupRequest(name, of...))
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

// wantGroup says which volumes EC2 must have snapshots of, and no others.
func (r *region) wantGroup(g ebs.SnapshotGroup, of ...ebs.VolumeID) {
	r.t.Helper()
	have, answered := map[ebs.VolumeID]string{}, map[ebs.VolumeID]string{}
	for _, sn := range r.Snapshots() {
		have[ebs.VolumeID(sn.VolumeID)] = sn.ID
	}
	for _, snap := range g.Snapshots {
		answered[snap.Volume] = string(snap.ID)
	}
	if diff := cmp.Diff(have, answered); diff != "" || len(r.Snapshots()) != len(of) || len(answered) != len(of) {
		r.t.Errorf("%d snapshots in EC2, want one of each of %v; in EC2 (-) and answered (+)\n%s", len(r.Snapshots()), of, diff)
	}
}

// The volumes of the group alone are taken, at one instant, and a repeat finds them.
func TestEnsureGroup(t *testing.T) {
	r := newRegion(t)
	a, b, other := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA), r.attached("pvc-3", nodeA)
	r.attached("pvc-4", nodeA2)
	first := r.group("group-1", a, b)
	r.wantGroup(first, a, b)
	calls := r.callsOf("CreateSnapshots")
	if len(calls) != 1 || calls[0].form.Get("InstanceSpecification.ExcludeBootVolume") != "true" || calls[0].form.Get("InstanceSpecification.ExcludeDataVolumeId.1") != string(other) {
		t.Errorf("calls %+v, want one that leaves out the root volume and %s", calls, other)
	}
	if s := first.Snapshots; first.ID != "group-1" || len(s) != 2 || !s[0].StartTime.Equal(s[1].StartTime) || s[0].State != ebs.SnapshotPending || s[0].Size != 10 {
		t.Errorf("%+v, want two of one instant, pending", first)
	}
	r.pass(time.Minute)
	again := r.group("group-1", b, a)
	if len(again.Snapshots) != 2 || again.Snapshots[0].ID != first.Snapshots[0].ID || again.Snapshots[1].State != ebs.SnapshotCompleted {
		t.Errorf("a repeat gave %+v, want the same, completed", again)
	}
	r.wantGroup(again, a, b)
	for why, ids := range map[string][]ebs.VolumeID{"another volume": {a, other}, "one volume fewer": {a}, "one volume more": {a, b, other}} {
		if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", ids...)); !errors.Is(err, ebs.ErrAlreadyExists) {
			t.Errorf("the name with %s: %v, want that it exists", why, err)
		}
	}
	r.wantGroup(again, a, b)
	found, err := r.client().Group(t.Context(), "group-1")
	if diff := cmp.Diff(again, found); diff != "" || err != nil {
		t.Errorf("looked up: %v (-want +got)\n%s", err, diff)
	}
}

// DRIVER rule 12: volumes that EC2 cannot take at one instant are refused with
// the reason, before anything is taken.
func TestGroupsThatCannotBe(t *testing.T) {
	r := newRegion(t)
	a, elsewhere, free := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA2), r.volume("pvc-3").ID
	for why, tc := range map[string]struct {
		volumes []ebs.VolumeID
		want    error
		texts   []string
	}{
		"two instances": {[]ebs.VolumeID{a, elsewhere}, ebs.ErrNotTogether, []string{string(a) + " to " + string(nodeA), string(elsewhere) + " to " + string(nodeA2)}},
		"not attached":  {[]ebs.VolumeID{a, free}, ebs.ErrNotTogether, []string{string(free), "no instance"}},
		"not there":     {[]ebs.VolumeID{a, "vol-0123456789abcdef0"}, ebs.ErrNotFound, []string{"vol-0123456789abcdef0"}},
		"no volume id":  {[]ebs.VolumeID{a, "my-volume"}, ebs.ErrNotFound, []string{"my-volume"}},
	} {
		_, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", tc.volumes...))
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", why, err, tc.want)
			continue
		}
		for _, text := range tc.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not name %q", why, err, text)
			}
		}
	}
	if n := len(r.callsOf("CreateSnapshots")); n != 0 {
		t.Errorf("%d CreateSnapshots calls, want none", n)
	}
}

// EC2 leaves out 40 volumes and no more.
func TestGroupBesideTooMany(t *testing.T) {
	r := newRegion(t)
	a := r.attached("pvc-1", nodeA)
	devices := ""
	for i := range 41 {
		devices += fmt.Sprintf("<item><deviceName>/dev/xvdb%d</deviceName><ebs><volumeId>vol-%017x</volumeId></ebs></item>", i, i)
	}
	r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
		if c.action == "DescribeInstances" {
			return []byte(strings.Replace(string(body), "<blockDeviceMapping>", "<blockDeviceMapping>"+devices, 1))
		}
		return body
	})
	if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", a)); !errors.Is(err, ebs.ErrNotTogether) || !strings.Contains(err.Error(), "41") || !strings.Contains(err.Error(), "40") {
		t.Errorf("%v, want both numbers", err)
	}
	if n := len(r.callsOf("CreateSnapshots")); n != 0 {
		t.Errorf("%d CreateSnapshots calls, want none", n)
	}
}

// DRIVER rule 12: the answer is lost, EC2 knows no token, reads lag. Never two sets.
func TestEnsureGroupAfterALostAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		hidden int // look-ups that do not show the snapshots
	}{
		"seen at once": {"the look-up after the lost answer finds them", 0},
		"seen late":    {"a read that lags must not lead to a second set", 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
			r.inject(ec2sim.Fault{Action: "CreateSnapshots", LostAnswer: ec2sim.LostAfter})
			hidden := first(tc.hidden + 1)
			r.intercept(func(c call) *reply {
				if c.action == "DescribeSnapshots" && hidden() {
					return &reply{200, "<DescribeSnapshotsResponse><snapshotSet/></DescribeSnapshotsResponse>"}
				}
				return nil
			})
			r.wantGroup(r.group("group-1", a, b), a, b)
			if n := len(r.callsOf("CreateSnapshots")); n != 1 {
				t.Errorf("%s: %d CreateSnapshots calls, want 1", tc.why, n)
			}
		})
	}
}

// DRIVER rule 12: a volume that is attached between look and call is taken too;
// its snapshot is deleted, also by a process that comes later.
func TestStraysOfAGroupAreDeleted(t *testing.T) {
	for name, fault := range map[string]ec2sim.Fault{
		"at once":               {},
		"after a lost answer":   {Action: "CreateSnapshots", LostAnswer: ec2sim.LostAfter},
		"after a failed delete": {Action: "DeleteSnapshot", Code: "InternalError", Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			a, b, stray := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA), r.attached("pvc-3", nodeA)
			// The look does not show it: it may lag, or be older than the attachment.
			r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
				if c.action == "DescribeInstances" {
					return []byte(strings.ReplaceAll(string(body), string(stray), string(a)))
				}
				return body
			})
			if fault.Action != "" {
				r.inject(fault)
			}
			if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", a, b)); err != nil {
				if !errors.Is(err, ebs.ErrMaybeAccepted) {
					t.Fatalf("%v, want that snapshots were taken", err)
				}
				r.ClearFaults()
			}
			r.wantGroup(r.group("group-1", a, b), a, b)
			if n := len(r.callsOf("CreateSnapshots")); n != 1 {
				t.Errorf("%d CreateSnapshots calls, want 1", n)
			}
		})
	}
}

// A volume is detached between look and call. One that was to be left out makes
// EC2 refuse, and the instance is looked at again; one of the group makes the set
// useless, and all is taken anew.
func TestVolumesThatLeaveMeanwhile(t *testing.T) {
	t.Run("left out", func(t *testing.T) {
		r := newRegion(t)
		a, gone := r.attached("pvc-1", nodeA), r.volume("pvc-2").ID
		stale := first(1)
		r.rewrite(func(c call, _ *http.Header, body []byte) []byte {
			if c.action == "DescribeInstances" && stale() {
				return []byte(strings.Replace(string(body), "<blockDeviceMapping>", "<blockDeviceMapping><item><deviceName>/dev/xvdba</deviceName><ebs><volumeId>"+string(gone)+"</volumeId></ebs></item>", 1))
			}
			return body
		})
		r.wantGroup(r.group("group-1", a), a)
	})
	t.Run("wanted", func(t *testing.T) {
		r := newRegion(t)
		a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
		begun := first(1)
		r.intercept(func(c call) *reply {
			if c.action == "CreateSnapshots" && begun() {
				if err := r.client().Detach(t.Context(), b, nodeA); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", a, b)); !errors.Is(err, ebs.ErrNotReady) || !strings.Contains(err.Error(), string(b)) {
			t.Errorf("%v, want that %s was detached", err, b)
		}
		if n := len(r.Snapshots()); n != 0 {
			t.Errorf("%d snapshots are left of the useless set", n)
		}
		r.attach(b, nodeA)
		r.pass(time.Minute)
		r.wantGroup(r.group("group-1", a, b), a, b)
	})
}

// A snapshot of the group is gone, or there are two of one volume: what is left
// may be somebody's only copy, so nothing is deleted and nothing taken.
func TestDoubtfulGroupsAreLeftAlone(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	g := r.group("group-1", a, b)
	if err := r.client().DeleteSnapshot(t.Context(), g.Snapshots[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", a, b)); !errors.Is(err, ebs.ErrNotReady) || !strings.Contains(err.Error(), string(g.Snapshots[0].Volume)) {
		t.Errorf("%v, want that the snapshot of %s is missing", err, g.Snapshots[0].Volume)
	}
	r.pass(time.Minute)
	double := snapshotRequest("double", g.Snapshots[1].Volume)
	double.Tags = groupRequest("group-2", a, b).Tags
	r.group("group-2", a, b)
	r.pass(time.Minute)
	if _, err := r.client().EnsureSnapshot(t.Context(), double); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-2", a, b)); !errors.Is(err, ebs.ErrNotReady) || !strings.Contains(err.Error(), "several") {
		t.Errorf("%v, want that there are several", err)
	}
	if n := len(r.Snapshots()); n != 4 {
		t.Errorf("%d snapshots, want all 4 untouched", n)
	}
}

// EC2 cannot complete one of the snapshots: the group says so, and stays.
func TestGroupWithAFailedSnapshot(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	r.inject(ec2sim.Fault{Action: "CreateSnapshots", Outcome: ec2sim.OutcomeError})
	g := r.group("group-1", a, b)
	r.pass(time.Minute)
	if _, err := r.client().EnsureGroup(t.Context(), groupRequest("group-1", a, b)); !errors.Is(err, ebs.ErrSnapshotFailed) {
		t.Errorf("%v, want that it failed", err)
	}
	r.wantGroup(g, a, b)
	if err := r.client().DeleteGroup(t.Context(), g.ID, nil); err != nil || len(r.Snapshots()) != 0 {
		t.Errorf("deleted: %v, %d left", err, len(r.Snapshots()))
	}
}

// What a class asks for, each snapshot of the group gets, also at the retry.
func TestGroupWithExtras(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	want := groupRequest("group-1", a, b)
	want.FastRestoreZones, want.Lock = []string{zoneA}, &ebs.SnapshotLock{Mode: ebs.LockGovernance, Days: 1}
	r.inject(ec2sim.Fault{Action: "LockSnapshot", Code: "UnauthorizedOperation"})
	if _, err := r.client().EnsureGroup(t.Context(), want); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Fatalf("%v, want that the snapshots were accepted", err)
	}
	g, err := r.client().EnsureGroup(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	r.wantGroup(g, a, b)
	for _, snap := range g.Snapshots {
		r.wantExtras(snap.ID, []string{zoneA}, "governance")
	}
	if n := len(r.callsOf("EnableFastSnapshotRestores")); n != 1 {
		t.Errorf("%d EnableFastSnapshotRestores calls, want 1 for all", n)
	}
	r.pass(time.Minute)
	if err := r.client().DeleteGroup(t.Context(), g.ID, nil); !errors.Is(err, ebs.ErrInUse) || len(r.Snapshots()) != 2 {
		t.Errorf("locked: %v, %d left; want that it is in use and whole", err, len(r.Snapshots()))
	}
	r.pass(25 * time.Hour)
	if err := r.client().DeleteGroup(t.Context(), g.ID, nil); err != nil || len(r.Snapshots()) != 0 {
		t.Errorf("after the lock's end: %v, %d left", err, len(r.Snapshots()))
	}
	if n := len(r.callsOf("DisableFastSnapshotRestores")); n != 1 {
		t.Errorf("%d DisableFastSnapshotRestores calls, want 1 for all", n)
	}
}

// Deletion goes on where an earlier call was cut short, and deletes nothing that
// the caller does not name as the group's.
func TestDeleteGroup(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	g := r.group("group-1", a, b)
	r.pass(time.Minute)
	foreign := r.snapshot("snap-1", a).ID
	one, two := g.Snapshots[0].ID, g.Snapshots[1].ID
	for why, members := range map[string][]ebs.SnapshotID{"one is not told": {one}, "one is another's": {one, two, foreign}} {
		if err := r.client().DeleteGroup(t.Context(), g.ID, members); !errors.Is(err, ebs.ErrInvalid) {
			t.Errorf("%s: %v, want that it is invalid", why, err)
		}
	}
	if n := len(r.Snapshots()); n != 3 {
		t.Fatalf("%d snapshots, want all 3 untouched", n)
	}
	begun := first(1)
	r.intercept(func(c call) *reply {
		if c.action == "DeleteSnapshot" && !begun() {
			return refusal(503, "RequestLimitExceeded", "Request limit exceeded.")
		}
		return nil
	})
	if err := r.client().DeleteGroup(t.Context(), g.ID, []ebs.SnapshotID{one, two}); !errors.Is(err, ebs.ErrThrottled) || len(r.Snapshots()) != 2 {
		t.Fatalf("%v, %d left; want it cut short", err, len(r.Snapshots()))
	}
	r.intercept(nil)
	for range 2 {
		if err := r.client().DeleteGroup(t.Context(), g.ID, []ebs.SnapshotID{one, two}); err != nil {
			t.Errorf("gone on with: %v", err)
		}
	}
	if all := r.Snapshots(); len(all) != 1 || all[0].ID != string(foreign) {
		t.Errorf("left are %+v, want %s alone", all, foreign)
	}
	if _, err := r.client().Group(t.Context(), g.ID); !errors.Is(err, ebs.ErrNotFound) {
		t.Errorf("looked up: %v, want that there is none", err)
	}
}

// The look by tag lags: what the caller names is found by its id.
func TestDeleteGroupThatIsNotShownYet(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	g := r.group("group-1", a, b)
	r.intercept(func(c call) *reply {
		if c.action == "DescribeSnapshots" && strings.HasPrefix(c.form.Get("Filter.1.Name"), "tag:") {
			return &reply{200, "<DescribeSnapshotsResponse><snapshotSet/></DescribeSnapshotsResponse>"}
		}
		return nil
	})
	if err := r.client().DeleteGroup(t.Context(), g.ID, []ebs.SnapshotID{g.Snapshots[0].ID, g.Snapshots[1].ID}); err != nil || len(r.Snapshots()) != 0 {
		t.Errorf("%v, %d left", err, len(r.Snapshots()))
	}
}

// The per-volume rate holds for groups too.
func TestEnsureGroupSpacesItsTries(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	r.snapshot("snap-1", a)
	begun := r.clock.Now()
	r.group("group-1", a, b)
	if took := r.clock.Since(begun); took < 14*time.Second || len(r.callsOf("CreateSnapshots")) > 3 {
		t.Errorf("it took %s and %d calls, want the spacing waited out", took, len(r.callsOf("CreateSnapshots")))
	}
}
