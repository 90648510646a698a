//go:build vmguest

package guest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// link makes the by-id link that udev would make.
func link(t *testing.T, volume, device string) {
	t.Helper()
	dir := "/dev/disk/by-id"
	must(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "nvme-Amazon_Elastic_Block_Store_"+serial(volume))
	must(t, os.Symlink("../../"+filepath.Base(device), path))
	t.Cleanup(func() { os.Remove(path) })
}

// TestWrongDiskBehindLink is the accident that must not happen: the link of
// one volume leads to the disk of another, empty one. Nothing is written to
// it, nor to the right disk, which is there too.
func TestWrongDiskBehindLink(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	attach(t, volumeB, 64)
	device(t, volumeA)
	link(t, volumeA, device(t, volumeB))
	before := checksum(t, diskName(t, volumeA)) + checksum(t, diskName(t, volumeB))
	wantCode(t, n.stage(volumeA, mountOf("ext4")), codes.FailedPrecondition, serial(volumeB))
	wantCode(t, n.stage(volumeA, blockOf()), codes.FailedPrecondition, serial(volumeB))
	wantCode(t, n.publish(volumeA, "pod", blockOf(), false), codes.FailedPrecondition, serial(volumeB))
	if after := checksum(t, diskName(t, volumeA)) + checksum(t, diskName(t, volumeB)); after != before {
		t.Error("a refused disk was written to")
	}
}

// TestRightLink is the ordinary case on an instance with udev.
func TestRightLink(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	link(t, volumeA, device(t, volumeA))
	must(t, n.stage(volumeA, mountOf("ext4")))
}

// TestOtherSerial: a disk that is no EBS volume (instance store) is not taken
// for one, and a volume that is not there is reported with what was looked at.
func TestOtherSerial(t *testing.T) {
	n := startNode(t, blockdev.Options{Patience: time.Second})
	attachAs(t, wire.Request{Disk: "instance-store", Serial: "AWS6AAE9B5BD2D0C3A0D", SizeBytes: 64 << 20})
	before := checksum(t, "instance-store")
	wantCode(t, n.stage(volumeA, mountOf("ext4")), codes.NotFound, volumeA)
	if checksum(t, "instance-store") != before {
		t.Error("a foreign disk was written to")
	}
}

// TestDiskComesLate: the call that is made before the disk is there succeeds
// when it comes.
func TestDiskComesLate(t *testing.T) {
	n := startNode(t, blockdev.Options{Patience: time.Minute})
	result := make(chan error, 1)
	go func() { result <- n.stage(volumeA, mountOf("ext4")) }()
	select {
	case err := <-result:
		t.Fatalf("the call must wait for the disk, it ended with %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	attach(t, volumeA, 64)
	must(t, <-result)
}

// TestCallerGivesUp: the wait ends with its caller's time, and a next call for
// the volume is not locked out.
func TestCallerGivesUp(t *testing.T) {
	n := startNode(t, blockdev.Options{Patience: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := n.client.NodeStageVolume(ctx, n.stageRequest(volumeA, mountOf("ext4")))
	wantCode(t, err, codes.DeadlineExceeded, "")
	attach(t, volumeA, 64)
	eventually(t, "stage after a call that was given up", func() bool { return n.stage(volumeA, mountOf("ext4")) == nil })
}

// TestPartition: the in-tree driver's volumes may name a partition. Only that
// partition is formatted.
func TestPartition(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	disk := device(t, volumeA)
	partition(t, disk)
	request := n.stageRequest(volumeA, mountOf("ext4"))
	request.VolumeContext = map[string]string{"partition": "1"}
	_, err := n.client.NodeStageVolume(t.Context(), request)
	must(t, err)
	t.Cleanup(func() { _ = n.unstage(volumeA) })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if !strings.Contains(string(mounts), disk+"p1 ") {
		t.Errorf("the partition of %s must be mounted:\n%s", disk, mounts)
	}
	head := readAt(t, disk, 0, 512)
	if head[510] != 0x55 || head[511] != 0xaa {
		t.Error("the partition table was overwritten")
	}
}
