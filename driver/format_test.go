package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ebs"
	"github.com/holdfast-dev/holdfast/internal/fs"
)

// TestFormatContext: what the controller writes is what the node reads, for
// every option of the table, under the keys of AWS's driver.
func TestFormatContext(t *testing.T) {
	all := fs.FormatOptions{BlockBytes: 4096, InodeBytes: 512, BytesPerInode: 65536, Inodes: 1000, BigAlloc: true, ClusterBytes: 65536, Encrypt: true}
	want := map[string]string{
		"blocksize": "4096", "inodesize": "512", "bytesperinode": "65536", "numberofinodes": "1000",
		"ext4bigalloc": "true", "ext4clustersize": "65536", "ext4encryptionsupport": "true",
	}
	got := formatContext(all)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("context (-want +got)\n%s", diff)
	}
	if len(got) != len(formatTable) {
		t.Errorf("%d options travel, the table has %d", len(got), len(formatTable))
	}
	got["storage.kubernetes.io/csiProvisionerIdentity"] = "1-ebs.csi.aws.com"
	got["partition"] = "1"
	if back, err := parseFormatContext(got, fs.Ext4); back != all || err != nil {
		t.Errorf("read back: %+v, %v; want %+v", back, err, all)
	}
	if context := formatContext(fs.FormatOptions{}); context != nil {
		t.Errorf("a class without options writes nothing, got %v", context)
	}
}

func TestCheckFormat(t *testing.T) {
	block := nodeCapability(writer, "")
	block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	for name, tc := range map[string]struct {
		why     string
		options fs.FormatOptions
		caps    []*csi.VolumeCapability
		size    ebs.GiB
		wrong   []string // nil: taken
	}{
		"none, block":      {"a class without options serves raw block volumes", fs.FormatOptions{}, []*csi.VolumeCapability{block}, 1, nil},
		"block":            {"no filesystem is made", fs.FormatOptions{BlockBytes: 4096, BigAlloc: true}, []*csi.VolumeCapability{block}, 1, []string{"blockSize, ext4BigAlloc", "raw block"}},
		"default is ext4":  {"no filesystem named", fs.FormatOptions{BigAlloc: true}, []*csi.VolumeCapability{nodeCapability(writer, "")}, 1, nil},
		"XFS":              {"the filesystem is normalised", fs.FormatOptions{BigAlloc: true}, []*csi.VolumeCapability{nodeCapability(writer, "XFS")}, 1, []string{"ext4BigAlloc", "xfs"}},
		"any of them":      {"each capability must be possible", fs.FormatOptions{Inodes: 9}, []*csi.VolumeCapability{nodeCapability(writer, "ext4"), nodeCapability(writer, "xfs")}, 1, []string{"numberOfInodes", "xfs"}},
		"too many":         {"the size decides how many inodes fit", fs.FormatOptions{Inodes: 4 << 20}, []*csi.VolumeCapability{nodeCapability(writer, "ext4")}, 1, []string{"numberOfInodes 4194304"}},
		"larger":           {"the size decides how many inodes fit", fs.FormatOptions{Inodes: 4 << 20}, []*csi.VolumeCapability{nodeCapability(writer, "ext4")}, 8, nil},
		"size not known":   {"what is not known is not judged", fs.FormatOptions{Inodes: 4 << 20}, []*csi.VolumeCapability{nodeCapability(writer, "ext4")}, 0, nil},
		"unknown":          {"never something else than asked for", fs.FormatOptions{Inodes: 9}, []*csi.VolumeCapability{nodeCapability(writer, "btrfs")}, 1, []string{"btrfs"}},
		"cluster, no such": {"clusters are bigalloc's", fs.FormatOptions{ClusterBytes: 65536}, []*csi.VolumeCapability{nodeCapability(writer, "")}, 1, []string{"ext4ClusterSize 65536", "ext4BigAlloc"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFormat(tc.options, tc.caps, tc.size)
			if (tc.wrong != nil) != errors.Is(err, ebs.ErrInvalid) {
				t.Fatalf("%s: %v", tc.why, err)
			}
			for _, part := range tc.wrong {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not name %q", tc.why, err, part)
				}
			}
		})
	}
}
