package ec2sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// drawn is how long n volumes take to be made, and what Drew was told.
func drawn(t *testing.T, n int, seed uint64, delays ec2sim.Delays) (took, told []time.Duration) {
	t.Helper()
	r := newRegion(t, func(c *ec2sim.Config) {
		c.Delays, c.Seed = &delays, seed
		c.Drew = func(action, resource string, lasts time.Duration) {
			if action != "CreateVolume" {
				t.Errorf("a delay of %s was drawn for %s, want CreateVolume alone", action, resource)
			}
			told = append(told, lasts)
		}
	})
	for range n {
		out, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := r.Volume(aws.ToString(out.VolumeId))
		took = append(took, v.Until.Sub(v.Created))
	}
	return took, told
}

// TestSpread: delays with a spread are drawn around their median, the slow ones
// further away than the fast ones, and the same again for the same seed.
func TestSpread(t *testing.T) {
	const median, spread = 1500 * time.Millisecond, 0.4
	delays := ec2sim.Delays{Create: ec2sim.Duration(median), Spread: spread}
	took, told := drawn(t, 400, 7, delays)
	if diff := cmp.Diff(told, took); diff != "" {
		t.Errorf("what Drew is told is not what volumes take (-told +took)\n%s", diff)
	}
	again, _ := drawn(t, 400, 7, delays)
	if !slices.Equal(took, again) {
		t.Error("the same seed drew other delays")
	}
	if other, _ := drawn(t, 400, 8, delays); slices.Equal(took, other) {
		t.Error("another seed drew the same delays")
	}
	slices.Sort(took)
	for name, tc := range map[string]struct {
		why      string
		at       float64
		from, to time.Duration
	}{
		"median": {"half of the draws are on each side of the delay", 0.5, median * 9 / 10, median * 11 / 10},
		"p99":    {"exp(2.33 × 0.4) is 2.5", 0.99, median * 2, median * 7 / 2},
		"p1":     {"the fast side's tail is short: 1/2.5", 0.01, median / 4, median / 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := took[int(tc.at*float64(len(took)))]; got < tc.from || got > tc.to {
				t.Errorf("%v, want %v to %v: %s", got, tc.from, tc.to, tc.why)
			}
		})
	}
	if slowest, most := took[len(took)-1], time.Duration(float64(median)*math.Exp(3*spread)); slowest > most {
		t.Errorf("one took %v: draws are cut at 3 sigmas, which is %v", slowest, most)
	}
}

// TestNoSpread: without a spread every call takes the delay itself.
func TestNoSpread(t *testing.T) {
	took, _ := drawn(t, 3, 7, ec2sim.Delays{Create: ec2sim.Duration(time.Second)})
	if diff := cmp.Diff([]time.Duration{time.Second, time.Second, time.Second}, took); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDrewTellsWhose: each delay is told with the id of the volume or snapshot
// whose state it is, be it the state of an attachment or of a change.
func TestDrewTellsWhose(t *testing.T) {
	delay := ec2sim.Duration(time.Second)
	delays := ec2sim.Delays{Create: delay, Attach: delay, Detach: delay, Modify: delay, Snapshot: delay, Delete: delay}
	var told []string
	r := newRegion(t, func(c *ec2sim.Config) {
		c.Delays = &delays
		c.Drew = func(action, resource string, lasts time.Duration) {
			if lasts != time.Second {
				t.Errorf("%s: %v was drawn, want 1 s", action, lasts)
			}
			told = append(told, action+" "+resource)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		r.clock.Step(time.Minute)
	}
	made, err := r.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(zoneA), Size: aws.Int32(1)})
	must(err)
	copied, err := r.CopyVolumes(t.Context(), &ec2.CopyVolumesInput{SourceVolumeId: made.VolumeId})
	must(err)
	_, err = r.AttachVolume(t.Context(), &ec2.AttachVolumeInput{VolumeId: made.VolumeId, InstanceId: aws.String(instanceA), Device: aws.String("/dev/xvdaa")})
	must(err)
	_, err = r.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: made.VolumeId, Size: aws.Int32(2)})
	must(err)
	snap, err := r.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: made.VolumeId})
	must(err)
	_, err = r.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: made.VolumeId})
	must(err)
	_, err = r.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: made.VolumeId})
	must(err)
	vol := aws.ToString(made.VolumeId)
	want := []string{
		"CreateVolume " + vol, "CopyVolumes " + aws.ToString(copied.Volumes[0].VolumeId), "AttachVolume " + vol, "ModifyVolume " + vol,
		"CreateSnapshot " + aws.ToString(snap.SnapshotId), "DetachVolume " + vol, "DeleteVolume " + vol,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what was told (-want +got)\n%s", diff)
	}
}

// TestSpreadOutOfRange: a spread that cannot be is refused, wherever it comes from.
func TestSpreadOutOfRange(t *testing.T) {
	for _, spread := range []float64{-0.1, 2.1} {
		bad := ec2sim.Delays{Spread: spread}
		if _, err := ec2sim.New(ec2sim.Config{Delays: &bad}); err == nil {
			t.Errorf("New takes spread %v", spread)
		}
		r := newRegion(t)
		if err := r.SetDelays(bad); err == nil {
			t.Errorf("SetDelays takes spread %v", spread)
		}
		if r.Delays() != ec2sim.DefaultDelays() {
			t.Errorf("the delays changed with a refused spread %v", spread)
		}
	}
}

// TestBucket: the size of an action's token bucket can be asked for.
func TestBucket(t *testing.T) {
	r := newRegion(t)
	if size, perSecond, ok := r.Bucket("AttachVolume"); size != 50 || perSecond != 5 || !ok {
		t.Errorf("AttachVolume: %v, %v, %v; want 50, 5, true", size, perSecond, ok)
	}
	if _, _, ok := r.Bucket("NoSuchAction"); ok {
		t.Error("an action that is not modelled has a bucket")
	}
}
