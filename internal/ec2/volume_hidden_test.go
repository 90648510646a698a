package ec2_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/ec2sim"
)

// refusedAfterFirst has EC2 refuse all but the first CreateVolume.
func (r *region) refusedAfterFirst(code string) {
	one := first(1)
	r.intercept(func(c call) *reply {
		if c.action == "CreateVolume" && !one() {
			return refusal(400, code, "no")
		}
		return nil
	})
}

// DRIVER §3: the first try was accepted and its answer lost; the SDK's own
// repeat is refused, and reads lag. No final code, or the volume leaks.
func TestARefusalAfterALostAnswerIsNotFinal(t *testing.T) {
	for _, code := range []string{"VolumeLimitExceeded", "RequestExpired", "SomethingNew"} {
		t.Run(code, func(t *testing.T) {
			r := newRegion(t)
			r.hideVolumes()
			if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: ec2sim.LostAfter}); err != nil {
				t.Fatal(err)
			}
			r.refusedAfterFirst(code)
			cloud := r.client()
			if _, err := cloud.EnsureVolume(t.Context(), request("pvc-1")); !errors.Is(err, ebs.ErrMaybeAccepted) {
				t.Errorf("%v while EC2 has %d volume, want that it may have been accepted", err, len(r.Volumes()))
			}
			r.pass(time.Minute)
			if vol, err := cloud.EnsureVolume(t.Context(), request("pvc-1")); err != nil || len(r.Volumes()) != 1 {
				t.Errorf("afterwards %s, %v, of %d volumes; want the one", vol.ID, err, len(r.Volumes()))
			}
		})
	}
}

// DRIVER rule 3, by another process and before EC2 shows the volume.
func TestTheQuotaAndAVolumeThatIsNotShownYet(t *testing.T) {
	r := newRegion(t)
	r.hideVolumes()
	r.refusedAfterFirst("VolumeLimitExceeded")
	if err := r.Inject(ec2sim.Fault{Action: "CreateVolume", LostAnswer: ec2sim.LostHeld}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client().EnsureVolume(soon(t, 200*time.Millisecond), request("pvc-1")); err == nil {
		t.Fatal("the answer was not lost")
	}
	vol, err := r.client().EnsureVolume(t.Context(), request("pvc-1"))
	if volumes := r.Volumes(); err != nil || len(volumes) != 1 || volumes[0].ID != string(vol.ID) {
		t.Errorf("%s, %v; want the one of %d", vol.ID, err, len(volumes))
	}
}

// A process that has just begun has no time to wait for the rate that a
// snapshot of the one before it has used up.
func TestTheRateAndASnapshotThatIsNotShownYet(t *testing.T) {
	r := newRegion(t)
	vol := r.volume("pvc-1")
	r.pass(time.Minute)
	if err := r.SetReadLag(map[string]ec2sim.Duration{"*": ec2sim.Duration(8 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	want := ebs.SnapshotRequest{Name: "s-1", Volume: vol.ID, Tags: map[string]string{ebs.TagSnapshotName: "s-1"}}
	if _, err := r.client().EnsureSnapshot(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client().EnsureSnapshot(soon(t, 10*time.Second), want); !errors.Is(err, ebs.ErrMaybeAccepted) {
		t.Errorf("%v, want that it may have been taken", err)
	}
}

func (r *region) hideVolumes() {
	r.t.Helper()
	if err := r.SetReadLag(map[string]ec2sim.Duration{"DescribeVolumes": ec2sim.Duration(3 * time.Second)}); err != nil {
		r.t.Fatal(err)
	}
}
