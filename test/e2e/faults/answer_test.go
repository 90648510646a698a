//go:build e2e

package faults

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/internal/ec2sim"
	"github.com/holdfast-dev/holdfast/internal/sandbox"
	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// EC2 acts and the answer is lost, for each call that changes something: a
// repeat finds out, and nothing is made twice.
func TestLostAnswers(t *testing.T) {
	s, class := begin(t, map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	for _, action := range []string{"CreateVolume", "AttachVolume", "DetachVolume", "DeleteVolume", "ModifyVolume", "CreateSnapshot", "DeleteSnapshot"} {
		s.Sim.Inject(t, ec2sim.Fault{Action: action, LostAnswer: ec2sim.LostAfter})
	}
	snapshots := s.SnapshotClass("copies", nil)
	claim := s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	s.Ready("app")
	if all := s.Named("pvc-" + string(claim.UID)); len(all) != 1 {
		t.Errorf("EC2 has %d volumes for the claim, want 1", len(all))
	}
	s.Step("created and attached, both answers lost")
	small := s.SizeKiB("app", "/data")
	s.Ask("data", "2Gi")
	s.Grown("app", "data", "/data", "2Gi", small)
	if n := modifications(s, s.VolumeID("data")); n != 1 {
		t.Errorf("EC2 has %d modifications of the volume, want 1", n)
	}
	s.Step("grown, answer lost")
	s.Snapshot("copy", "data", snapshots)
	if n := len(snapshotsOf(s, s.VolumeID("data"))); n != 1 {
		t.Errorf("EC2 has %d snapshots of the volume, want 1", n)
	}
	s.Step("copied, answer lost")
	holds(s, "app", "data")
	s.Run("-n", s.Namespace, "delete", "volumesnapshot", "copy", "--timeout=2m")
	s.DeletePod("app-again")
	id := s.VolumeID("data")
	s.Run("-n", s.Namespace, "delete", "pvc", "data")
	s.VolumeGone(id)
	if left := s.Sim.Pending(t); len(left) != 0 {
		t.Errorf("faults that hit nothing: %+v", left)
	}
}

// EC2 refuses everything for a while, as when an account's request rate is
// used up: nothing fails for good.
func TestThrottled(t *testing.T) {
	s, class := begin(t, nil)
	s.Claim("before", class, "1Gi")
	s.Pod("old", "before")
	s.Ready("old")
	id := s.VolumeID("before")

	s.Sim.Inject(t, ec2sim.Fault{Action: "*", Code: "RequestLimitExceeded", Message: "Request limit exceeded.", HTTPStatus: 503, Count: -1})
	claim := s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	s.Run("-n", s.Namespace, "delete", "pod", "old", "--wait=false")
	s.Run("-n", s.Namespace, "delete", "pvc", "before", "--wait=false")
	s.T.Log(s.Event("data", "ProvisioningFailed", "RequestLimitExceeded"))
	s.Must(s.Within(time.Minute, "throttled calls", func(ctx context.Context) (string, error) {
		n, err := s.Sim.Count(ctx, "RequestLimitExceeded")
		if err != nil || n >= 5 {
			return "", err
		}
		return "only a few", nil
	}))
	s.Sim.Heal(t)
	s.Step("EC2 answers again")
	s.Ready("app")
	if all := s.Named("pvc-" + string(claim.UID)); len(all) != 1 {
		t.Errorf("EC2 has %d volumes for the claim, want 1", len(all))
	}
	s.VolumeGone(id)
}

// EC2 has faults of its own for a while.
func TestInternalErrors(t *testing.T) {
	s, class := begin(t, nil)
	for _, action := range []string{"CreateVolume", "AttachVolume", "DescribeVolumes", "DetachVolume"} {
		s.Sim.Inject(t, ec2sim.Fault{Action: action, Code: "InternalError", Message: "An internal error has occurred", HTTPStatus: 500, Count: 4})
	}
	claim := s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	s.Ready("app")
	if all := s.Named("pvc-" + string(claim.UID)); len(all) != 1 {
		t.Errorf("EC2 has %d volumes for the claim, want 1", len(all))
	}
	holds(s, "app", "data")
}

// EC2 is away while one volume is created and another one is to be detached
// and deleted. When it is back, all of it happens.
func TestEC2Away(t *testing.T) {
	s, class := begin(t, nil)
	s.Claim("before", class, "1Gi")
	s.Pod("old", "before")
	s.Ready("old")
	id := s.VolumeID("before")
	restore := s.Sim.Slow(t, func(d *ec2sim.Delays) { d.Create = ec2sim.Duration(8 * time.Second) })
	claim := s.Claim("data", class, "1Gi")
	s.Pod("app", "data")
	made := creating(s, claim)

	s.Must(s.StopComponent(t.Context(), sandbox.EC2))
	back := func() { s.Must(s.StartComponent(context.WithoutCancel(t.Context()), sandbox.EC2)) }
	t.Cleanup(func() {
		if back != nil {
			back()
		}
	})
	s.Run("-n", s.Namespace, "delete", "pod", "old", "--wait=false")
	s.Run("-n", s.Namespace, "delete", "pvc", "before", "--wait=false")
	s.T.Log(s.Event("data", "ProvisioningFailed"))
	back()
	back = nil
	s.Step("EC2 is back")
	restore()
	s.Ready("app")
	if got := s.VolumeID("data"); got != made || len(s.Named("pvc-"+string(claim.UID))) != 1 {
		t.Errorf("claim has volume %s, want %s, which was being created when EC2 went away, and no other", got, made)
	}
	s.VolumeGone(id)
	holds(s, "app", "data")
}

func modifications(s *stage.Stage, id string) int {
	s.T.Helper()
	state, err := s.Sim.State(s.T.Context())
	s.Must(err)
	for _, v := range state.Volumes {
		if v.ID == id {
			return len(v.Modifications)
		}
	}
	s.T.Fatalf("EC2 has no volume %s", id)
	return 0
}

func snapshotsOf(s *stage.Stage, volume string) []types.Snapshot {
	s.T.Helper()
	out, err := s.EC2.DescribeSnapshots(s.T.Context(), &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{"self"},
		Filters:  []types.Filter{{Name: aws.String("volume-id"), Values: []string{volume}}},
	})
	s.Must(err)
	return out.Snapshots
}
