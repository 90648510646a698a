//go:build vmguest

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
)

// loopVolume is a volume whose disk can grow while it is used: a loop device
// in the machine, since QEMU's NVMe disks keep their size.
type loopVolume struct {
	t            *testing.T
	file, device string
}

func newLoopVolume(t *testing.T, volume string, mib int64) *loopVolume {
	t.Helper()
	v := &loopVolume{t: t, file: filepath.Join(t.TempDir(), volume+".img")}
	file, err := os.Create(v.file)
	must(t, err)
	must(t, file.Truncate(mib<<20))
	must(t, file.Close())
	v.device = strings.TrimSpace(run(t, "losetup", "-f", "--show", v.file))
	t.Cleanup(func() { run(t, "losetup", "-d", v.device) })
	link(t, volume, v.device)
	return v
}

// grow makes the disk larger, as EC2 does with an attached volume.
func (v *loopVolume) grow(mib int64) {
	v.t.Helper()
	must(v.t, os.Truncate(v.file, mib<<20))
	run(v.t, "losetup", "-c", v.device)
}

func (n *node) expand(volume, target string, mib int64, c *csi.VolumeCapability) (int64, error) {
	answer, err := n.client.NodeExpandVolume(n.t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: volume, VolumePath: n.path(target), StagingTargetPath: n.path("stage-" + volume),
		CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20}, VolumeCapability: c,
	})
	return answer.GetCapacityBytes(), err
}

// TestGrowWhileMounted grows filesystems under a Pod that uses them. For ext4
// this needs CAP_SYS_RESOURCE, which the machine has.
func TestGrowWhileMounted(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			n := startNode(t, blockdev.Options{Identity: blockdev.LoopBackingFile})
			v := newLoopVolume(t, volumeA, 320)
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), false))
			open, err := os.Create(n.path("pod/open"))
			must(t, err)
			defer open.Close()
			before := n.totalBytes(volumeA, "pod")
			v.grow(640)
			got, err := n.expand(volumeA, "pod", 640, mountOf(fsType))
			must(t, err)
			if got != 640<<20 {
				t.Errorf("the answer must be the volume's size, got %d", got)
			}
			after := n.totalBytes(volumeA, "pod")
			if grown := after - before; grown < 280<<20 {
				t.Errorf("the filesystem must have grown by about 320 MiB, it grew by %d bytes", grown)
			}
			_, err = open.WriteString("still writable")
			must(t, err)
			_, err = n.expand(volumeA, "stage-"+volumeA, 640, nil) // a repeat, by the staging path
			must(t, err)
			if again := n.totalBytes(volumeA, "pod"); again != after {
				t.Errorf("a repeat must change nothing: %d, then %d", after, again)
			}
		})
	}
}

// TestGrowUnderReadOnlyPod: the Pod sees the volume read-only, the volume grows
// all the same.
func TestGrowUnderReadOnlyPod(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			n := startNode(t, blockdev.Options{Identity: blockdev.LoopBackingFile})
			v := newLoopVolume(t, volumeA, 320)
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), true))
			v.grow(640)
			_, err := n.expand(volumeA, "pod", 640, mountOf(fsType))
			must(t, err)
			if got := n.totalBytes(volumeA, "pod"); got < 560<<20 {
				t.Errorf("the filesystem must have the disk's 640 MiB, it has %d bytes", got)
			}
		})
	}
}

// TestGrowBeforeTheDisk: kubelet may ask before the machine sees the new size.
// The call waits for it; what never comes is an answer to try again, and not
// one that says the size is impossible.
func TestGrowBeforeTheDisk(t *testing.T) {
	n := startNode(t, blockdev.Options{Identity: blockdev.LoopBackingFile, Patience: 2 * time.Second})
	v := newLoopVolume(t, volumeA, 320)
	must(t, n.stage(volumeA, mountOf("xfs")))
	_, err := n.expand(volumeA, "stage-"+volumeA, 640, mountOf("xfs"))
	wantCode(t, err, codes.Unavailable, "not grown yet")
	result := make(chan error, 1)
	go func() {
		_, err := n.expand(volumeA, "stage-"+volumeA, 640, mountOf("xfs"))
		result <- err
	}()
	v.grow(640)
	must(t, <-result)
}

// TestStageGrows: a volume that grew while no node had it is grown when it is
// staged, and also by a stage that finds it mounted: the one before may have
// ended between the mount and the growth.
func TestStageGrows(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			n := startNode(t, blockdev.Options{})
			attach(t, volumeA, 320)
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.unstage(volumeA))
			detach(t, volumeA)
			attach(t, volumeA, 640)
			must(t, n.stage(volumeA, mountOf(fsType)))
			if got := n.totalBytes(volumeA, "stage-"+volumeA); got < 560<<20 {
				t.Errorf("the filesystem must have the disk's 640 MiB, it has %d bytes", got)
			}
		})
	}
	t.Run("already-mounted", func(t *testing.T) {
		n := startNode(t, blockdev.Options{Identity: blockdev.LoopBackingFile})
		v := newLoopVolume(t, volumeA, 320)
		must(t, n.stage(volumeA, mountOf("ext4")))
		v.grow(640)
		must(t, n.stage(volumeA, mountOf("ext4")))
		if got := n.totalBytes(volumeA, "stage-"+volumeA); got < 560<<20 {
			t.Errorf("the filesystem must have the disk's 640 MiB, it has %d bytes", got)
		}
	})
}
