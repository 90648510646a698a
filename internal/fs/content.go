package fs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	utilexec "k8s.io/utils/exec"
)

// content is what a device holds, as far as it matters here.
type content struct {
	filesystem string // blkid's TYPE, also "crypto_LUKS", "LVM2_member", "swap"
	partitions string // blkid's PTTYPE: "gpt", "dos"
	unfinished bool   // an xfs whose mkfs was cut off
	remains    *remains
}

// action is what may be done with a device.
type action int

const (
	refuse   action = iota
	format          // make the filesystem, then mount it
	reformat        // clear an unfinished filesystem, then as format
	mountIt         // check and mount what is there
)

// decide is the table in the package comment; as is the type to mount with.
func decide(found content, want Type, readOnly bool) (do action, as Type, err error) {
	empty := found.filesystem == "" && found.partitions == ""
	switch {
	case found.remains != nil && found.remains.used:
		return refuse, "", fmt.Errorf("%s: %w", found.remains.describe(), ErrContent)
	case found.partitions != "":
		return refuse, "", fmt.Errorf("a partition table (%s) instead of %s: %w", found.partitions, want, ErrContent)
	case readOnly && (empty || found.unfinished):
		return refuse, "", fmt.Errorf("no filesystem, and read-only access cannot make one: %w", ErrContent)
	case empty:
		return format, want, nil
	case found.unfinished:
		return reformat, want, nil
	case found.filesystem == string(want):
		return mountIt, want, nil
	case found.filesystem == string(Ext3) && want == Ext4:
		// A snapshot of an older class: the same driver of the kernel mounts both.
		return mountIt, Ext3, nil
	}
	return refuse, "", fmt.Errorf("%s instead of %s: %w", found.filesystem, want, ErrContent)
}

// probe reads what the device holds; options are what a filesystem there would
// have been made with.
func probe(ctx context.Context, exec utilexec.Interface, device string, options FormatOptions) (content, error) {
	// -p reads the device itself and no cache.
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-o", "export", device).CombinedOutput()
	found, err := parseBlkid(string(out), err)
	if err != nil {
		return content{}, fmt.Errorf("blkid %s: %w", device, err)
	}
	head, err := readEnds(device)
	if err != nil {
		return content{}, fmt.Errorf("read %s: %w: %w", device, err, ErrUnreadable)
	}
	found.unfinished = found.filesystem == string(XFS) && xfsUnfinished(head)
	if found.filesystem == "" && found.partitions == "" {
		found.remains, err = findRemains(device, options)
	}
	if err != nil {
		return content{}, fmt.Errorf("read %s: %w: %w", device, err, ErrUnreadable)
	}
	return found, nil
}

// blkidNothingFound is blkid's exit status for a device without a known
// content, and also for one that is absent or cannot be read (blkid(8)): who
// sees it must find out which.
const blkidNothingFound = 2

// parseBlkid reads blkid's answer in its export format.
func parseBlkid(out string, err error) (content, error) {
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.ExitStatus() == blkidNothingFound {
		return content{}, nil
	}
	if err != nil {
		// 8 is an ambivalent result: traces of more than one content.
		return content{}, fmt.Errorf("%w: %s: %w", err, strings.TrimSpace(out), ErrUnreadable)
	}
	var found content
	var others []string
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case key == "TYPE":
			found.filesystem = value
		case key == "PTTYPE":
			found.partitions = value
		case key != "" && key != "DEVNAME" && !strings.HasPrefix(key, "PART_ENTRY_"):
			others = append(others, key)
		}
	}
	if found == (content{}) && len(others) > 0 {
		return content{}, fmt.Errorf("answer has %v and no TYPE: %w", others, ErrUnreadable)
	}
	// What is left is a partition: its entry in the table is found (PART_ENTRY_*),
	// and nothing in it.
	return found, nil
}

// readEnds reads the first and the last sectors of a device, so that one that
// cannot be read is not taken for an empty one, and returns the first.
func readEnds(device string) ([]byte, error) {
	file, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(size, headBytes))
	if _, err := file.ReadAt(head, 0); err != nil {
		return nil, err
	}
	tail := make([]byte, len(head))
	if _, err := file.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	return head, nil
}

// headBytes covers the superblocks of all supported filesystems.
const headBytes = 64 << 10

// xfsUnfinished reports whether the head of a device is an xfs superblock whose
// "in progress" flag is still set: mkfs.xfs writes the superblock first with
// the flag, clears it last, and the kernel mounts none that has it (Linux,
// fs/xfs/libxfs/xfs_format.h: sb_inprogress, 126 bytes into the superblock). No
// file can ever have been in such a filesystem.
func xfsUnfinished(head []byte) bool {
	const magic, inProgress = 0x58465342, 126 // "XFSB"
	return len(head) > inProgress && binary.BigEndian.Uint32(head) == magic && head[inProgress] == 1
}

// clearHead removes an unfinished superblock.
func clearHead(device string) error {
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(make([]byte, headBytes), 0)
	return errors.Join(err, file.Sync(), file.Close())
}
