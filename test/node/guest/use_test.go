//go:build vmguest

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/testvm/guest"
	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// TestRawBlock publishes a disk without a filesystem.
func TestRawBlock(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	attach(t, volumeB, 64)
	must(t, n.stage(volumeA, blockOf()))
	must(t, n.publish(volumeA, "dir/block", blockOf(), false))
	must(t, n.publish(volumeA, "dir/block", blockOf(), false))
	writeAt(t, n.path("dir/block"), 4096, []byte("raw"))
	if got := n.totalBytes(volumeA, "dir/block"); got != 64<<20 {
		t.Errorf("statistics of a block volume are its size, got %d", got)
	}
	size, err := n.expand(volumeA, "dir/block", 64, blockOf())
	must(t, err)
	if size != 64<<20 {
		t.Errorf("a grown block volume answers its size, got %d", size)
	}
	must(t, n.stage(volumeB, blockOf()))
	wantCode(t, n.publish(volumeB, "dir/block", blockOf(), false), codes.AlreadyExists, "something other")
	must(t, n.unpublish(volumeA, "dir/block"))
	if _, err := os.Lstat(n.path("dir/block")); !os.IsNotExist(err) {
		t.Errorf("the target must be gone, got %v", err)
	}
	must(t, n.unstage(volumeA))
	data := readAt(t, device(t, volumeA), 4096, 3)
	if string(data) != "raw" {
		t.Errorf("what was written to the block volume must be on the disk, got %q", data)
	}
}

// TestCloneBesideSource mounts a copy of an xfs volume on the node that has
// the original mounted: both have one UUID.
func TestCloneBesideSource(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 320)
	must(t, n.stage(volumeA, mountOf("xfs")))
	must(t, n.publish(volumeA, "pod-a", mountOf("xfs"), false))
	writeSynced(t, n.path("pod-a/data"), "copied")
	must(t, n.unpublish(volumeA, "pod-a"))
	must(t, n.unstage(volumeA))
	unix.Sync()
	_, err := guest.Ask(wire.Request{Do: wire.Copy, From: diskName(t, volumeA), Disk: diskName(t, volumeB)})
	must(t, err)
	attach(t, volumeB, 320)
	must(t, n.stage(volumeA, mountOf("xfs")))
	must(t, n.stage(volumeB, mountOf("xfs")))
	must(t, n.publish(volumeB, "pod-b", mountOf("xfs"), false))
	wantFile(t, n.path("pod-b/data"), "copied")
}

// TestStatistics: what kubelet reports of a volume comes from here.
func TestStatistics(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	must(t, n.stage(volumeA, mountOf("ext4")))
	must(t, n.publish(volumeA, "pod", mountOf("ext4"), false))
	before, err := n.stats(volumeA, "pod")
	must(t, err)
	writeSynced(t, n.path("pod/data"), strings.Repeat("x", 8<<20))
	after, err := n.stats(volumeA, "pod")
	must(t, err)
	bytes, inodes := after.GetUsage()[0], after.GetUsage()[1]
	if bytes.GetUnit() != csi.VolumeUsage_BYTES || inodes.GetUnit() != csi.VolumeUsage_INODES {
		t.Fatalf("want bytes and inodes, got %v", after.GetUsage())
	}
	if used := bytes.GetUsed() - before.GetUsage()[0].GetUsed(); used < 8<<20 || used > 9<<20 {
		t.Errorf("8 MiB were written, used grew by %d", used)
	}
	if used := inodes.GetUsed() - before.GetUsage()[1].GetUsed(); used != 1 {
		t.Errorf("one file was made, used inodes grew by %d", used)
	}
	_, err = n.stats(volumeB, "pod")
	wantCode(t, err, codes.NotFound, volumeA)
	must(t, os.Mkdir(n.path("plain"), 0o755))
	_, err = n.stats(volumeA, "plain")
	wantCode(t, err, codes.NotFound, "nothing is mounted")
	_, err = n.stats(volumeA, "absent")
	wantCode(t, err, codes.NotFound, "nothing is mounted")
}

// TestConflicts: a repeat that asks for something else is refused, and what is
// there goes on.
func TestConflicts(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	attach(t, volumeB, 64)
	wantCode(t, n.publish(volumeA, "pod", mountOf("ext4"), false), codes.FailedPrecondition, "not staged")
	must(t, n.stage(volumeA, mountOf("ext4")))
	must(t, n.stage(volumeB, mountOf("ext4")))
	must(t, n.publish(volumeA, "pod", mountOf("ext4"), false))
	wantCode(t, n.stage(volumeA, mountOf("xfs")), codes.AlreadyExists, "wanted is xfs")
	wantCode(t, n.publish(volumeB, "pod", mountOf("ext4"), false), codes.AlreadyExists, "is mounted")
	wantCode(t, n.publish(volumeA, "pod", mountOf("ext4"), true), codes.AlreadyExists, "read-only")
	_, err := n.client.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: volumeA, StagingTargetPath: n.path("stage-" + volumeB), TargetPath: n.path("other"), VolumeCapability: mountOf("ext4"),
	})
	wantCode(t, err, codes.FailedPrecondition, volumeB)
	writeSynced(t, n.path("pod/data"), "goes on")
}

// TestDiskGoneWhileUsed pulls the disk out under a Pod: nothing hangs, the node
// can be cleaned up, and what was synced is there when the disk comes back,
// after the journal was replayed.
func TestDiskGoneWhileUsed(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			n := startNode(t, blockdev.Options{Patience: patience})
			attach(t, volumeA, 320)
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), false))
			writeSynced(t, n.path("pod/data"), "synced")
			detach(t, volumeA)
			eventually(t, "the disk's end", func() bool {
				files, _ := filepath.Glob("/sys/block/nvme*")
				return len(files) == 0
			})
			file, err := os.Create(n.path("pod/lost"))
			if err == nil {
				err = file.Sync()
				file.Close()
			}
			if err == nil {
				t.Error("a write to a disk that is gone must fail")
			}
			if _, err := n.stats(volumeA, "pod"); err == nil {
				t.Error("a disk that is gone has no statistics")
			}
			must(t, n.unpublish(volumeA, "pod"))
			must(t, n.unstage(volumeA))
			attach(t, volumeA, 320)
			must(t, n.stage(volumeA, mountOf(fsType)))
			must(t, n.publish(volumeA, "pod", mountOf(fsType), false))
			wantFile(t, n.path("pod/data"), "synced")
		})
	}
}

// TestStackedMounts: what a crashed predecessor mounted twice is cleaned up by
// one call.
func TestStackedMounts(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	must(t, n.stage(volumeA, mountOf("ext4")))
	must(t, n.publish(volumeA, "pod", mountOf("ext4"), false))
	must(t, unix.Mount(n.path("stage-"+volumeA), n.path("pod"), "", unix.MS_BIND, ""))
	must(t, n.unpublish(volumeA, "pod"))
	if _, err := os.Lstat(n.path("pod")); !os.IsNotExist(err) {
		t.Errorf("the target must be gone, got %v", err)
	}
	must(t, n.unstage(volumeA))
}

// TestNodeRestarts: another process goes on where the last one was.
func TestNodeRestarts(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	must(t, n.stage(volumeA, mountOf("ext4")))
	next := startNode(t, blockdev.Options{})
	next.dir = n.dir
	must(t, next.stage(volumeA, mountOf("ext4")))
	must(t, next.publish(volumeA, "pod", mountOf("ext4"), false))
	must(t, n.unpublish(volumeA, "pod"))
	must(t, next.unstage(volumeA))
}

// TestUnpublishKeepsData: a path that is no mount point and holds something is
// left alone.
func TestUnpublishKeepsData(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	must(t, os.Mkdir(n.path("pod"), 0o755))
	must(t, os.WriteFile(n.path("pod/data"), []byte("kept"), 0o600))
	if err := n.unpublish(volumeA, "pod"); err == nil {
		t.Error("a folder with content is not to be removed")
	}
	wantFile(t, n.path("pod/data"), "kept")
}

// TestCgroupV2 shows that the machine's kernel has the unified hierarchy alone,
// as ordinary nodes do: all other tests of this package ran under it.
func TestCgroupV2(t *testing.T) {
	group := "/sys/fs/cgroup/node"
	must(t, os.Mkdir(group, 0o755))
	defer os.Remove(group)
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	must(t, err)
	if !strings.Contains(string(controllers), "memory") {
		t.Errorf("the unified hierarchy must have the memory controller, it has %q", controllers)
	}
	wantFile(t, group+"/cgroup.procs", "")
}
