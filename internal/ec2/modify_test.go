package ec2_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// grow grows by another process.
func (r *region) grow(id ebs.VolumeID, atLeast ebs.GiB) (ebs.Volume, error) {
	return r.client().Grow(r.t.Context(), id, atLeast)
}

// DRIVER rule 10, as far as growth goes: one ModifyVolume, none for no-ops.
func TestGrow(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	for _, step := range []struct {
		why             string
		atLeast, expect ebs.GiB
		calls           int
	}{
		{"large enough already", 10, 10, 0},
		{"larger than asked for", 5, 10, 0},
		{"growth", 20, 20, 1},
		{"a repeat", 20, 20, 1},
	} {
		got, err := r.grow(vol.ID, step.atLeast)
		if err != nil || got.Size != step.expect {
			t.Fatalf("%s: %d GiB, %v; want %d", step.why, got.Size, err, step.expect)
		}
		if n := len(r.callsOf("ModifyVolume")); n != step.calls {
			t.Errorf("%s: %d ModifyVolume calls so far, want %d", step.why, n, step.calls)
		}
	}
	if v, _ := r.Volume(string(vol.ID)); v.SizeGiB != 20 {
		t.Errorf("EC2 shows %d GiB", v.SizeGiB)
	}
}

// EC2 shows the new size while the change is still "modifying": not usable yet.
func TestGrowWaitsForAChangeOfAnEarlierCall(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.SetDelays(ec2sim.Delays{Modify: ec2sim.Duration(30 * time.Second), Optimize: ec2sim.Duration(time.Hour)})
	begun := make(chan error, 1)
	go func() {
		_, err := r.grow(vol.ID, 20)
		begun <- err
	}()
	for v, _ := r.Volume(string(vol.ID)); len(v.Modifications) == 0; v, _ = r.Volume(string(vol.ID)) {
		<-time.After(time.Millisecond)
	}
	got, err := r.grow(vol.ID, 20)
	if err != nil || got.Size != 20 {
		t.Errorf("%d GiB, %v; want 20", got.Size, err)
	}
	if v, _ := r.Volume(string(vol.ID)); v.Modifications[len(v.Modifications)-1].State != "optimizing" {
		t.Errorf("answered while the change is %s", v.Modifications[len(v.Modifications)-1].State)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
	if n := len(r.callsOf("ModifyVolume")); n != 1 {
		t.Errorf("%d ModifyVolume calls, want 1", n)
	}
	if _, err := r.grow(vol.ID, 30); !errors.Is(err, ebs.ErrNotReady) || !strings.Contains(err.Error(), "optimizing") {
		t.Errorf("a further change while the last is optimizing: %v, want that it is not ready and why", err)
	}
}

func TestGrowAfterALostAnswer(t *testing.T) {
	for _, lost := range []int{1, 2} {
		r := newRegion(t)
		vol := r.volume("pvc-1")
		if err := r.Inject(ec2sim.Fault{Action: "ModifyVolume", LostAnswer: ec2sim.LostAfter, Count: lost}); err != nil {
			t.Fatal(err)
		}
		got, err := r.grow(vol.ID, 20)
		if err != nil || got.Size != 20 {
			t.Errorf("%d answers lost: %d GiB, %v; want 20", lost, got.Size, err)
		}
		if v, _ := r.Volume(string(vol.ID)); len(v.Modifications) != 1 {
			t.Errorf("%d answers lost: %d changes, want 1", lost, len(v.Modifications))
		}
	}
}

// DRIVER rule 10: the 5th change in 24 h.
func TestGrowTooOften(t *testing.T) {
	r := newRegion(t)
	r.SetDelays(ec2sim.Delays{})
	vol := r.volume("pvc-1")
	for i := range 4 {
		if _, err := r.grow(vol.ID, ebs.GiB(11+i)); err != nil {
			t.Fatal(err)
		}
	}
	before := len(r.callsOf("ModifyVolume"))
	_, err := r.grow(vol.ID, 20)
	if !errors.Is(err, ebs.ErrModificationRate) || !strings.Contains(err.Error(), "2026-06-02") {
		t.Errorf("%v, want EC2's refusal with the next allowed time", err)
	}
	if n := len(r.callsOf("ModifyVolume")) - before; n != 1 {
		t.Errorf("%d ModifyVolume calls, want 1: no hot loop", n)
	}
}

// DRIVER: a stale read in Expand is never NOT_FOUND, a size beyond the type is OUT_OF_RANGE.
func TestGrowOfOddVolumes(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	hidden := first(3)
	r.intercept(func(c call) *reply {
		if c.action == "DescribeVolumes" && hidden() {
			return noVolumes()
		}
		return nil
	})
	if got, err := r.grow(vol.ID, 12); err != nil || got.Size != 12 {
		t.Errorf("hidden for a while: %d GiB, %v; want 12", got.Size, err)
	}
	if _, err := r.grow("vol-0123456789abcdef0", 12); !errors.Is(err, ebs.ErrNotFound) {
		t.Errorf("no such volume: %v, want that it is not found", err)
	}
	if _, err := r.grow(vol.ID, 65537); !errors.Is(err, ebs.ErrOutOfRange) {
		t.Errorf("beyond gp3: %v, want that it is out of range", err)
	}
	if n := len(r.callsOf("ModifyVolume")); n != 1 {
		t.Errorf("%d ModifyVolume calls, want 1: what cannot work is not sent", n)
	}
}
