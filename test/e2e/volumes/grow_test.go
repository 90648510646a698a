//go:build e2e

package volumes

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/test/e2e/stage"
)

// A filesystem grows while a Pod writes to it. Growing a mounted ext4 needs
// CAP_SYS_RESOURCE (fs/ext4/ioctl.c, EXT4_IOC_RESIZE_FS): where the machine
// withholds it, the refusal is shown instead, and that the Pod and its data stay.
func TestOnlineGrowth(t *testing.T) {
	t.Parallel()
	for _, fs := range []string{"xfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			t.Parallel()
			s := stage.New(t)
			s.Claim("data", s.Class(fs, map[string]string{"csi.storage.k8s.io/fstype": fs}), "1Gi")
			s.Pod("app", "data")
			s.Ready("app")
			sum := s.FillAndSum("app", "/data/file", 8)
			small := s.SizeKiB("app", "/data")
			s.Ask("data", "2Gi")
			if fs == "ext4" && !mayResize(t) {
				s.GrowOnNode("app", "data")
				t.Log("no CAP_SYS_RESOURCE on this machine; the node driver's event:\n", s.Event("app", "VolumeResizeFailed"))
			} else {
				s.Grown("app", "data", "/data", "2Gi", small)
			}
			if got := s.Sum("app", "/data/file"); got != sum {
				t.Errorf("checksum after growing is %s, want %s", got, sum)
			}
			if n := s.Ready("app").Status.ContainerStatuses[0].RestartCount; n != 0 {
				t.Errorf("the container was restarted %d times", n)
			}
		})
	}
}

// mayResize tells whether this machine lets a mounted ext4 grow.
func mayResize(t *testing.T) bool {
	t.Helper()
	set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return set == 1
}

// A volume restored into a larger claim has a filesystem of the claim's size,
// not of the snapshot's.
func TestRestoreIntoLargerClaim(t *testing.T) {
	t.Parallel()
	s := stage.New(t)
	class := s.Class("xfs", map[string]string{"csi.storage.k8s.io/fstype": "xfs"})
	s.Claim("source", class, "1Gi")
	s.Pod("writer", "source")
	node := s.Ready("writer").Spec.NodeName
	sum := s.FillAndSum("writer", "/data/file", 8)
	small := s.SizeKiB("writer", "/data")
	s.Snapshot("copy", "source", s.SnapshotClass("copies", nil))
	s.Claim("restored", class, "2Gi", stage.FromSnapshot("copy"))
	// beside its source on one node: two xfs of one UUID
	s.Pod("reader", "restored", stage.OnNode(node))
	s.Ready("reader")
	s.Grown("reader", "restored", "/data", "2Gi", small)
	if got := s.Sum("reader", "/data/file"); got != sum {
		t.Errorf("checksum of the restored file is %s, want %s", got, sum)
	}
}
