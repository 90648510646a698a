//go:build vmguest

package guest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/blockdev"
	"github.com/holdfast-dev/holdfast/internal/testvm/wire"
)

// writeAt changes a disk, as something other than Holdfast would.
func writeAt(t *testing.T, device string, offset int64, data []byte) {
	t.Helper()
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	must(t, err)
	_, err = file.WriteAt(data, offset)
	must(t, err)
	must(t, file.Sync())
	must(t, file.Close())
}

// readAt reads a part of a disk.
func readAt(t *testing.T, device string, offset int64, length int) []byte {
	t.Helper()
	file, err := os.Open(device)
	must(t, err)
	defer file.Close()
	data := make([]byte, length)
	_, err = file.ReadAt(data, offset)
	must(t, err)
	return data
}

// partition gives a disk an MBR with one Linux partition from 1 MiB on.
func partition(t *testing.T, disk string) {
	t.Helper()
	mbr := make([]byte, 512)
	entry := mbr[446:462]
	entry[4] = 0x83 // Linux
	binary.LittleEndian.PutUint32(entry[8:], 2048)
	binary.LittleEndian.PutUint32(entry[12:], 32<<11) // 32 MiB in sectors
	mbr[510], mbr[511] = 0x55, 0xaa
	writeAt(t, disk, 0, mbr)
	file, err := os.Open(disk)
	must(t, err)
	defer file.Close()
	must(t, unix.IoctlSetInt(int(file.Fd()), unix.BLKRRPART, 0))
	eventually(t, "partition of "+disk, func() bool {
		_, err := os.Stat(disk + "p1")
		return err == nil
	})
}

// TestForeignContent: a disk that holds anything but the wanted filesystem is
// refused, and stays as it is to the last byte.
func TestForeignContent(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		fill func(t *testing.T, device string)
		want string // in the error
	}{
		"partitions": {
			"a partition table is somebody's disk", partition, "partition table (dos)",
		},
		"luks": {
			"an encrypted disk looks like noise behind its header",
			func(t *testing.T, d string) { writeAt(t, d, 0, []byte("LUKS\xba\xbe\x00\x01")) }, "crypto_LUKS",
		},
		"swap": {
			"swap space may be in use", func(t *testing.T, d string) { run(t, "mkswap", d) }, "swap",
		},
		"xfs for ext4": {
			"a class that asks for another filesystem does not get the data deleted",
			func(t *testing.T, d string) { run(t, "mkfs.xfs", "-q", d) }, "xfs instead of ext4",
		},
		"ambivalent": {
			"traces of two contents are no proof of either",
			func(t *testing.T, d string) {
				run(t, "mkfs.xfs", "-q", d)
				superblock := readAt(t, d, 0, 512)
				run(t, "mkfs.ext4", "-q", "-F", d)
				writeAt(t, d, 0, superblock)
			}, "cannot tell",
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			n := startNode(t, blockdev.Options{})
			attach(t, volumeA, 320)
			tc.fill(t, device(t, volumeA))
			before := checksum(t, diskName(t, volumeA))
			err := n.stage(volumeA, mountOf("ext4"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: want a refusal with %q in it, got %v", tc.why, tc.want, err)
			}
			if checksum(t, diskName(t, volumeA)) != before {
				t.Errorf("%s: the disk was written to", tc.why)
			}
		})
	}
}

// TestUnreadableDisk: to blkid a disk that cannot be read looks like an empty
// one. It must not be formatted.
func TestUnreadableDisk(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attachAs(t, wire.Request{Disk: diskName(t, volumeA), Serial: serial(volumeA), SizeBytes: 64 << 20, FailReads: true})
	device(t, volumeA)
	before := checksum(t, diskName(t, volumeA))
	wantCode(t, n.stage(volumeA, mountOf("ext4")), codes.Internal, "input/output error")
	if checksum(t, diskName(t, volumeA)) != before {
		t.Error("an unreadable disk was written to")
	}
}

// TestDamagedFilesystem: what fsck does not repair by itself is left to a
// person, and never made anew.
func TestDamagedFilesystem(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	d := device(t, volumeA)
	run(t, "mkfs.ext4", "-q", d)
	run(t, "debugfs", "-w", "-R", "clri <2>", d)                // no root folder any more
	run(t, "debugfs", "-w", "-R", "set_super_value state 2", d) // "errors detected": fsck looks at everything
	unix.Sync()
	wantCode(t, n.stage(volumeA, mountOf("ext4")), codes.FailedPrecondition, "fsck")
	out := run(t, "blkid", "-p", d)
	if !strings.Contains(out, `TYPE="ext4"`) {
		t.Errorf("the damaged filesystem must still be there, blkid says %s", out)
	}
}

// TestRepairableFilesystem: what fsck repairs by itself is repaired and mounted.
func TestRepairableFilesystem(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	d := device(t, volumeA)
	run(t, "mkfs.ext4", "-q", d)
	run(t, "debugfs", "-w", "-R", "set_super_value free_blocks_count 7", d)
	run(t, "debugfs", "-w", "-R", "set_super_value state 2", d)
	must(t, n.stage(volumeA, mountOf("ext4")))
	must(t, n.publish(volumeA, "pod", mountOf("ext4"), false))
	answer, err := n.stats(volumeA, "pod")
	must(t, err)
	if free := answer.GetUsage()[0].GetAvailable(); free < 16<<20 {
		t.Errorf("fsck must have corrected the number of free blocks, available are %d bytes", free)
	}
}

// TestFilesystemShutOff: after an error ext4 makes itself read-only, which this
// machine's kernel (Linux 6.1) shows in no option. No further writer gets it, and
// the next mount repairs it.
func TestFilesystemShutOff(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	writes := mountOf("ext4", "errors=remount-ro")
	must(t, n.stage(volumeA, writes))
	must(t, n.publish(volumeA, "pod1", writes, false))
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device(t, volumeA)), "trigger_fs_error")
	must(t, os.WriteFile(trigger, []byte("1"), 0o200))
	wantCode(t, n.publish(volumeA, "pod2", writes, false), codes.FailedPrecondition, "shut it off after an error")
	must(t, n.publish(volumeA, "pod1", writes, false))
	must(t, n.publish(volumeA, "reader", writes, true))
	wantCode(t, n.stage(volumeA, writes), codes.Unavailable, "next mount")
	must(t, n.unpublish(volumeA, "pod1"))
	must(t, n.unpublish(volumeA, "reader"))
	must(t, n.unstage(volumeA))
	must(t, n.stage(volumeA, writes))
	must(t, n.publish(volumeA, "pod2", writes, false))
	must(t, os.WriteFile(n.path("pod2/file"), []byte("written"), 0o600))
}

// TestUnfinishedFormat: a process that was killed in the middle of mkfs.xfs
// leaves a superblock that says so. No data can be in it, so the next call
// formats again instead of failing for ever.
func TestUnfinishedFormat(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 320)
	d := device(t, volumeA)
	run(t, "mkfs.xfs", "-q", d)
	writeAt(t, d, 126, []byte{1}) // sb_inprogress
	wantCode(t, n.stage(volumeA, readerOf("xfs")), codes.FailedPrecondition, "read-only")
	must(t, n.stage(volumeA, mountOf("xfs")))
	must(t, n.publish(volumeA, "pod", mountOf("xfs"), false))
	writeSynced(t, n.path("pod/data"), "works")
}

// TestReadOnly: read-only access never makes a filesystem, and changes nothing
// in one that is there.
func TestReadOnly(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 64)
	empty := checksum(t, diskName(t, volumeA))
	wantCode(t, n.stage(volumeA, readerOf("ext4")), codes.FailedPrecondition, "read-only")
	if checksum(t, diskName(t, volumeA)) != empty {
		t.Fatal("read-only access wrote to an empty disk")
	}
	must(t, n.stage(volumeA, mountOf("ext4")))
	must(t, n.publish(volumeA, "pod", mountOf("ext4"), false))
	writeSynced(t, n.path("pod/data"), "kept")
	must(t, n.unpublish(volumeA, "pod"))
	must(t, n.unstage(volumeA))
	unix.Sync()
	before := checksum(t, diskName(t, volumeA))
	must(t, n.stage(volumeA, readerOf("ext4")))
	must(t, n.publish(volumeA, "pod", readerOf("ext4"), false))
	wantFile(t, n.path("pod/data"), "kept")
	if err := os.WriteFile(n.path("pod/more"), nil, 0o600); err == nil {
		t.Error("a file could be made on a read-only mount")
	}
	wantCode(t, n.stage(volumeA, mountOf("ext4")), codes.AlreadyExists, "read-only=true")
	must(t, n.unpublish(volumeA, "pod"))
	must(t, n.unstage(volumeA))
	if checksum(t, diskName(t, volumeA)) != before {
		t.Error("read-only access changed the disk")
	}
}

// TestFilesystemWithoutHead: the beginning of a used filesystem was overwritten
// by accident. blkid calls the disk empty; e2fsck could still save everything,
// so it must not be formatted. A mkfs that was killed before it wrote the
// superblock looks alike and may be done again.
func TestFilesystemWithoutHead(t *testing.T) {
	n := startNode(t, blockdev.Options{})
	attach(t, volumeA, 256)
	d := device(t, volumeA)
	must(t, n.stage(volumeA, mountOf("ext4")))
	must(t, n.publish(volumeA, "pod", mountOf("ext4"), false))
	writeSynced(t, n.path("pod/data"), "not lost")
	must(t, n.unpublish(volumeA, "pod"))
	must(t, n.unstage(volumeA))
	writeAt(t, d, 0, make([]byte, 4096))
	before := checksum(t, diskName(t, volumeA))
	wantCode(t, n.stage(volumeA, mountOf("ext4")), codes.FailedPrecondition, "e2fsck -b")
	if checksum(t, diskName(t, volumeA)) != before {
		t.Error("the disk was written to")
	}
	attach(t, volumeB, 256)
	d = device(t, volumeB)
	run(t, "mkfs.ext4", "-q", d)
	writeAt(t, d, 0, make([]byte, 4096))
	must(t, n.stage(volumeB, mountOf("ext4")))
}
