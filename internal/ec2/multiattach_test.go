package ec2_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// Reads that lag show the other instance's attachment alone: with Multi-Attach
// that is no verdict on the one that is under way.
func TestAttachBesideAnotherWhileReadsLag(t *testing.T) {
	r := newRegion(t)
	vol, err := r.client().EnsureVolume(t.Context(), request("pvc-1", func(w *ebs.VolumeRequest) {
		w.Type, w.IOPS, w.MultiAttach = ebs.IO2, 500, true
	}))
	if err != nil || !vol.MultiAttach {
		t.Fatalf("%+v, %v, want Multi-Attach", vol, err)
	}
	r.mustAttach(vol.ID, nodeA)
	r.pass(time.Minute)
	if err := r.SetReadLag(map[string]ec2sim.Duration{"DescribeVolumes": ec2sim.Duration(4 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	att := r.mustAttach(vol.ID, nodeA2)
	if att.State != ebs.Attached || !slices.Equal(att.Others, []ebs.InstanceID{nodeA}) {
		t.Errorf("%+v, want attached, and %s named as the other", att, nodeA)
	}
	// An instance that already shows the volume, while the volume shows only the other's.
	again := r.mustAttach(vol.ID, nodeA2)
	if again.DeviceName != att.DeviceName {
		t.Errorf("a repeat gave %s, want %s", again.DeviceName, att.DeviceName)
	}
	if err := r.client().Detach(t.Context(), vol.ID, nodeA2); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadLag(nil); err != nil {
		t.Fatal(err)
	}
	if node, _ := r.attachedTo(vol.ID); node != string(nodeA) {
		t.Errorf("attached to %q afterwards, want %s alone", node, nodeA)
	}
}
