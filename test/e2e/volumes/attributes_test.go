//go:build e2e

package volumes

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A volume begins with a class of attributes, gets another one under a running
// Pod together with more space, and EC2 has modified it once. The classes are
// there before the claim: of one that csi-resizer does not know yet it says that it
// does not exist, and does not look again for minutes.
func TestAttributesOfALiveVolume(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs", "iops": "3500"})
	first := s.Attributes("first", map[string]string{"iops": "4000", "tagSpecification_1": "tier=first", "tagSpecification_2": "old=x"})
	second := s.Attributes("second", map[string]string{
		"type": "io2", "iopsPerGB": "500", "allowAutoIOPSIncreaseOnModify": "true",
		"tagSpecification_1": "tier=second", "tagSpecification_2": "claim={{ .PVCNamespace }}/{{ .PVCName }}", "tagDeletion_1": "old",
	})
	third := s.Attributes("third", map[string]string{"tagSpecification_1": "tier=third"})
	s.Claim("data", class, "8Gi", stage.OfAttributes(first))
	s.Pod("app", "data")
	s.Ready("app")
	id := s.VolumeID("data")
	v := s.Volume(id)
	if v.VolumeType != types.VolumeTypeGp3 || aws.ToInt32(v.Iops) != 4000 {
		t.Errorf("volume is %s with %d IOPS, want gp3 with its class's 4000", v.VolumeType, aws.ToInt32(v.Iops))
	}
	s.HasTags("made with its class", v.Tags, map[string]string{"tier": "first", "old": "x"})
	sum := s.FillAndSum("app", "/data/file", 8)
	small := s.SizeKiB("app", "/data")

	s.AskAttributes("data", second, "16Gi")
	s.Grown("app", "data", "/data", "16Gi", small)
	s.HasAttributes("data", second)
	v = s.Volume(id)
	if v.VolumeType != types.VolumeTypeIo2 || aws.ToInt32(v.Iops) != 8000 || aws.ToInt32(v.Size) != 16 {
		t.Errorf("volume is %s of %d GiB with %d IOPS, want io2, 16, 8000 (500 for each GiB)", v.VolumeType, aws.ToInt32(v.Size), aws.ToInt32(v.Iops))
	}
	s.HasTags("after the change", v.Tags, map[string]string{"tier": "second", "claim": s.Namespace + "/data", "CSIVolumeName": s.PV("data").Name})
	if old, there := stage.Tags(v.Tags)["old"]; there {
		t.Errorf("tag old is still there: %q", old)
	}
	s.OneModification(id)
	if got := s.Sum("app", "/data/file"); got != sum {
		t.Errorf("checksum after the change is %s, want %s", got, sum)
	}

	s.AskAttributes("data", third, "")
	s.HasAttributes("data", third)
	s.HasTags("tags alone", s.Volume(id).Tags, map[string]string{"tier": "third", "claim": s.Namespace + "/data"})
	s.OneModification(id)
	if n := s.Ready("app").Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the container was restarted %d times", n)
	}
}

// A class that the volume cannot have changes nothing, says why, and another one
// can be asked for.
func TestInfeasibleAttributes(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	infeasible := s.Attributes("infeasible", map[string]string{"iops": "50000", "tagSpecification_1": "tier=never"})
	feasible := s.Attributes("feasible", map[string]string{"iops": "4000"})
	s.Claim("data", s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), "8Gi")
	s.Pod("app", "data")
	s.Ready("app")
	id := s.VolumeID("data")
	s.AskAttributes("data", infeasible, "")
	s.Event("data", "50000", "8 GiB", "4000")
	s.Infeasible("data", infeasible)
	v := s.Volume(id)
	if _, there := stage.Tags(v.Tags)["tier"]; there || aws.ToInt32(v.Iops) != 3000 {
		t.Errorf("the volume was changed: %d IOPS, tags %v", aws.ToInt32(v.Iops), stage.Tags(v.Tags))
	}
	s.AskAttributes("data", feasible, "")
	s.HasAttributes("data", feasible)
	if n := aws.ToInt32(s.Volume(id).Iops); n != 4000 {
		t.Errorf("volume has %d IOPS, want 4000", n)
	}
}
