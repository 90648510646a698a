package ec2_test

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// hide has reads lag for a few seconds.
func (r *region) hide() {
	r.t.Helper()
	r.pass(time.Minute)
	if err := r.SetReadLag(map[string]ec2sim.Duration{"*": ec2sim.Duration(8 * time.Second)}); err != nil {
		r.t.Fatal(err)
	}
	r.pass(time.Minute)
}

// A group whose answer did not reach the caller is asked for again before EC2
// shows its snapshots, and EC2's rate does not keep the driver from a second set.
func TestAGroupThatIsNotShownYetIsNotTakenTwice(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	delays := r.Delays()
	delays.SnapshotSpacing = 0
	if err := r.SetDelays(delays); err != nil {
		t.Fatal(err)
	}
	r.hide()
	cloud := r.client()
	if _, err := cloud.EnsureGroup(t.Context(), groupRequest("group-1", a, b)); err != nil {
		t.Fatal(err)
	}
	again, err := cloud.EnsureGroup(t.Context(), groupRequest("group-1", a, b))
	if err != nil {
		t.Fatal(err)
	}
	r.wantGroup(again, a, b)
}

// A group is deleted before EC2 shows its snapshots.
func TestAGroupThatIsNotShownYetIsDeleted(t *testing.T) {
	r := newRegion(t)
	a, b := r.attached("pvc-1", nodeA), r.attached("pvc-2", nodeA)
	r.hide()
	g := r.group("group-1", a, b)
	if err := r.client().DeleteGroup(t.Context(), g.ID, []ebs.SnapshotID{g.Snapshots[0].ID, g.Snapshots[1].ID}); err != nil {
		t.Fatal(err)
	}
	if left := r.Snapshots(); len(left) != 0 {
		t.Errorf("the deletion succeeded and leaves %d snapshots", len(left))
	}
}
