//go:build e2e

package volumes

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A clone has what its source had, while the source is in use; beside it on one
// node, grown to its claim's size; and from then on each is its own.
func TestClone(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"xfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			t.Parallel()
			s := stage.New(t)
			class := s.Class(fs, map[string]string{"csi.storage.k8s.io/fstype": fs})
			s.Claim("source", class, "1Gi")
			s.Pod("writer", "source")
			node := s.Ready("writer").Spec.NodeName
			sum := s.FillAndSum("writer", "/data/file", 8)
			small := s.SizeKiB("writer", "/data")
			size := "2Gi"
			if fs == "ext4" && !mayResize(t) {
				size = "1Gi" // a mounted ext4 does not grow on this machine
			}
			s.Claim("clone", class, size, stage.FromClaim("source"))
			s.Pod("twin", "clone", stage.OnNode(node)) // two filesystems of one UUID
			s.Ready("twin")
			if got := s.Sum("twin", "/data/file"); got != sum {
				t.Errorf("checksum in the clone is %s, want %s", got, sum)
			}
			if size == "2Gi" {
				s.Grown("twin", "clone", "/data", "2Gi", small)
			}
			v := s.Volume(s.VolumeID("clone"))
			if got, want := aws.ToString(v.SourceVolumeId), s.VolumeID("source"); got != want {
				t.Errorf("volume %s is a copy of %q, want %s", *v.VolumeId, got, want)
			}
			s.HasTags("volume", v.Tags, map[string]string{"kubernetes.io/created-for/pvc/name": "clone", "ebs.csi.aws.com/cluster": "true"})

			other := s.FillAndSum("twin", "/data/file", 4)
			if got := s.Sum("writer", "/data/file"); got != sum {
				t.Errorf("checksum in the source is %s after the clone was written to, want %s", got, sum)
			}
			s.In("writer", "sh", "-c", "echo later >/data/later && sync")
			if out, err := s.Exec(t.Context(), s.Namespace, "twin", "cat", "/data/later"); err == nil {
				t.Errorf("what the source wrote later is in the clone: %q", out)
			}
			// the source may go first
			s.DeletePod("writer")
			s.Run("-n", s.Namespace, "delete", "pvc", "source", "--timeout=2m")
			if got := s.Sum("twin", "/data/file"); got != other {
				t.Errorf("checksum in the clone is %s after its source is gone, want %s", got, other)
			}
		})
	}
}

// The scheduler does not know where a claim's source is. A Pod that it puts into
// another zone comes to its clone all the same.
func TestCloneBringsItsPodToTheSourcesZone(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("gp3", nil)
	s.Claim("source", class, "1Gi")
	s.Pod("writer", "source", stage.OnNode("node-a1"))
	s.Ready("writer")
	sum := s.FillAndSum("writer", "/data/file", 4)
	s.Claim("clone", class, "1Gi", stage.FromClaim("source"))
	s.Pod("twin", "clone", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"us-east-1b"}}},
			}}},
		}}
	})
	if node := s.Ready("twin").Spec.NodeName; s.ZoneOf(node) != s.ZoneOf("node-a1") {
		t.Errorf("the Pod runs on %s in %s, its volume is in %s", node, s.ZoneOf(node), s.ZoneOf("node-a1"))
	}
	if got := s.Sum("twin", "/data/file"); got != sum {
		t.Errorf("checksum in the clone is %s, want %s", got, sum)
	}
}

// A raw device is cloned like any other.
func TestCloneOfARawDevice(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("gp3", nil)
	block := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }
	s.Claim("source", class, "1Gi", block)
	s.Pod("writer", "source", asDevice)
	s.Ready("writer")
	const read = "dd if=/dev/disk bs=4096 count=16 skip=100 2>/dev/null | sha256sum"
	sum := s.In("writer", "sh", "-c", "dd if=/dev/urandom of=/dev/disk bs=4096 count=16 seek=100 conv=notrunc 2>/dev/null; sync; "+read)
	s.Claim("clone", class, "1Gi", block, stage.FromClaim("source"))
	s.Pod("twin", "clone", asDevice)
	s.Ready("twin")
	if got := s.In("twin", "sh", "-c", read); got != sum {
		t.Errorf("checksum of the clone's blocks is %s, want %s", got, sum)
	}
}

// asDevice has a Pod use its claim as the device /dev/disk.
func asDevice(p *corev1.Pod) {
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/disk"}}
}
