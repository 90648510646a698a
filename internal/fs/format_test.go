package fs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const gib = int64(1) << 30

// TestFormatOptions judges options and asks mkfs itself, on a sparse file,
// whether it agrees.
func TestFormatOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		why     string
		fsType  Type
		options FormatOptions
		bytes   int64 // of the device, 0 is 1 GiB
		wrong   []string
		// stricter: mkfs makes something else of it instead of refusing
		stricter bool
	}{
		"ext4 nothing":          {"mkfs chooses", Ext4, FormatOptions{}, 0, nil, false},
		"ext3 nothing":          {"mkfs chooses", Ext3, FormatOptions{}, 0, nil, false},
		"xfs nothing":           {"mkfs chooses", XFS, FormatOptions{}, 0, nil, false},
		"ext4 least block":      {"1 KiB is the smallest", Ext4, FormatOptions{BlockBytes: 1024}, 0, nil, false},
		"ext4 most block":       {"64 KiB is the largest", Ext4, FormatOptions{BlockBytes: 65536}, 0, nil, false},
		"ext4 block below":      {"512 bytes are none", Ext4, FormatOptions{BlockBytes: 512}, 0, []string{"blockSize 512", "power of two from 1024 to 65536"}, false},
		"ext4 block above":      {"128 KiB are none", Ext4, FormatOptions{BlockBytes: 131072}, 0, []string{"blockSize 131072"}, false},
		"ext4 block odd":        {"mke2fs would round in silence", Ext4, FormatOptions{BlockBytes: 5000}, 0, []string{"blockSize 5000", "power of two"}, true},
		"ext4 least inode":      {"128 bytes is the smallest", Ext4, FormatOptions{InodeBytes: 128}, 0, nil, false},
		"ext4 inode of a block": {"a block is the largest", Ext4, FormatOptions{BlockBytes: 1024, InodeBytes: 1024}, 0, nil, false},
		"ext4 inode above":      {"more than a block", Ext4, FormatOptions{InodeBytes: 8192}, 0, []string{"inodeSize 8192", "from 128 to 4096"}, false},
		"ext4 inode below":      {"64 bytes hold none", Ext4, FormatOptions{InodeBytes: 64}, 0, []string{"inodeSize 64"}, false},
		"ext4 inode odd":        {"a power of two", Ext4, FormatOptions{InodeBytes: 300}, 0, []string{"inodeSize 300"}, false},
		"ext4 least ratio":      {"an inode for each KiB", Ext4, FormatOptions{BytesPerInode: 1024}, 0, nil, false},
		"ext4 odd ratio":        {"any number is a ratio", Ext4, FormatOptions{BytesPerInode: 10000}, 0, nil, false},
		"ext4 most ratio":       {"an inode for 64 MiB", Ext4, FormatOptions{BytesPerInode: 64 << 20}, 0, nil, false},
		"ext4 ratio below":      {"too many inodes", Ext4, FormatOptions{BytesPerInode: 1023}, 0, []string{"bytesPerInode 1023", "from 1024 to 67108864"}, false},
		"ext4 ratio above":      {"too few inodes", Ext4, FormatOptions{BytesPerInode: 64<<20 + 1}, 0, []string{"bytesPerInode 67108865"}, false},
		"ext4 ratio and inode":  {"inodes alone would fill the volume", Ext4, FormatOptions{BytesPerInode: 1024, InodeBytes: 1024}, 0, []string{"bytesPerInode 1024", "no room"}, false},
		"ext4 count":            {"so many inodes", Ext4, FormatOptions{Inodes: 5000}, 0, nil, false},
		"ext4 count goes first": {"mke2fs takes the number", Ext4, FormatOptions{Inodes: 5000, BytesPerInode: 1024, InodeBytes: 1024}, 0, nil, false},
		"ext4 count above":      {"inodes alone would fill the volume", Ext4, FormatOptions{Inodes: 4 << 20}, 0, []string{"numberOfInodes 4194304", "less than 4194304"}, false},
		"ext4 count beyond":     {"32 bits count inodes", Ext4, FormatOptions{Inodes: 1 << 32}, 0, []string{"numberOfInodes 4294967296"}, false},
		"ext4 clusters":         {"16 blocks are a cluster", Ext4, FormatOptions{BigAlloc: true}, 0, nil, false},
		"ext4 cluster size":     {"256 KiB are a cluster", Ext4, FormatOptions{BigAlloc: true, ClusterBytes: 256 << 10}, 0, nil, false},
		"ext4 least cluster":    {"2 KiB is the smallest", Ext4, FormatOptions{BigAlloc: true, BlockBytes: 1024, ClusterBytes: 2048}, 0, nil, false},
		"ext4 cluster block":    {"a cluster of one block", Ext4, FormatOptions{BigAlloc: true, ClusterBytes: 4096}, 0, nil, false},
		"ext4 cluster below":    {"less than 2 KiB", Ext4, FormatOptions{BigAlloc: true, BlockBytes: 1024, ClusterBytes: 1024}, 0, []string{"ext4ClusterSize 1024", "from 2048"}, false},
		"ext4 half a block":     {"less than a block", Ext4, FormatOptions{BigAlloc: true, ClusterBytes: 2048}, 0, []string{"ext4ClusterSize 2048", "from 4096"}, false},
		"ext4 cluster above":    {"more than 256 MiB", Ext4, FormatOptions{BigAlloc: true, ClusterBytes: 512 << 20}, 0, []string{"ext4ClusterSize 536870912"}, false},
		"ext4 cluster alone":    {"clusters are bigalloc's", Ext4, FormatOptions{ClusterBytes: 65536}, 0, []string{"ext4ClusterSize 65536", "ext4BigAlloc"}, false},
		"ext4 encryption":       {"the feature alone", Ext4, FormatOptions{Encrypt: true}, 0, nil, false},
		"ext4 all":              {"all that ext4 has", Ext4, FormatOptions{BlockBytes: 4096, InodeBytes: 512, BytesPerInode: 32768, BigAlloc: true, ClusterBytes: 32768, Encrypt: true}, 0, nil, false},
		"ext4 cluster ratio":    {"one group with an inode too many", Ext4, FormatOptions{BigAlloc: true, BytesPerInode: 32767}, 0, []string{"32769 inodes", "allowed are 32768", "clusters of 65536"}, false},
		"ext4 cluster ratio ok": {"one group, as full as it goes", Ext4, FormatOptions{BigAlloc: true, BytesPerInode: 32768}, 0, nil, false},
		"ext4 cluster groups":   {"four groups with an inode too many", Ext4, FormatOptions{BigAlloc: true, BytesPerInode: 65535}, 8 * gib, []string{"131074 inodes", "allowed are 131072"}, false},
		"ext4 cluster count":    {"one group with an inode too many", Ext4, FormatOptions{BigAlloc: true, Inodes: 32769}, 2 * gib, []string{"32769 inodes"}, false},
		"ext4 cluster count ok": {"four groups", Ext4, FormatOptions{BigAlloc: true, Inodes: 32769}, 8 * gib, nil, false},
		"ext4 blocks, 64 KiB":   {"a group ends within 16 bits", Ext4, FormatOptions{BlockBytes: 65536, BigAlloc: true, ClusterBytes: 65536, BytesPerInode: 32768}, 2 * gib, nil, false},
		"ext3 numbers":          {"ext3 has ext4's numbers", Ext3, FormatOptions{BlockBytes: 2048, InodeBytes: 512, BytesPerInode: 8192}, 0, nil, false},
		"ext3 clusters":         {"ext3 has no extents", Ext3, FormatOptions{BigAlloc: true}, 0, []string{"ext4BigAlloc", "ext3", "use ext4"}, false},
		"ext3 encryption":       {"the kernel's ext3 is no more than ext4 without its features", Ext3, FormatOptions{Encrypt: true}, 0, []string{"ext4EncryptionSupport", "use ext4"}, true},
		"xfs least block":       {"1 KiB is the smallest", XFS, FormatOptions{BlockBytes: 1024}, 0, nil, false},
		"xfs most block":        {"64 KiB is the largest", XFS, FormatOptions{BlockBytes: 65536}, 0, nil, false},
		"xfs block below":       {"checksums need 1 KiB", XFS, FormatOptions{BlockBytes: 512}, 0, []string{"blockSize 512", "from 1024"}, false},
		"xfs block odd":         {"a power of two", XFS, FormatOptions{BlockBytes: 5000}, 0, []string{"blockSize 5000"}, false},
		"xfs inode":             {"2 KiB is the largest", XFS, FormatOptions{InodeBytes: 2048}, 0, nil, false},
		"xfs inode below":       {"checksums need 512 bytes", XFS, FormatOptions{InodeBytes: 256}, 0, []string{"inodeSize 256", "from 512"}, false},
		"xfs inode above":       {"more than 2 KiB", XFS, FormatOptions{InodeBytes: 4096}, 0, []string{"inodeSize 4096", "to 2048"}, false},
		"xfs two to a block":    {"half a block at most", XFS, FormatOptions{BlockBytes: 1024, InodeBytes: 1024}, 0, []string{"inodeSize 1024", "to 512"}, false},
		"xfs ratio":             {"xfs makes inodes as it goes", XFS, FormatOptions{BytesPerInode: 8192, Inodes: 5}, 0, []string{"bytesPerInode, numberOfInodes", "xfs", "use ext4"}, false},
		"xfs clusters":          {"bigalloc is ext4's", XFS, FormatOptions{BigAlloc: true, ClusterBytes: 65536}, 0, []string{"ext4BigAlloc, ext4ClusterSize"}, false},
		"ext4 larger":           {"more inodes fit on a larger volume", Ext4, FormatOptions{Inodes: 4 << 20}, 8 * gib, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			size := max(tc.bytes, gib)
			err := tc.options.Check(tc.fsType, size)
			if (tc.wrong != nil) != errors.Is(err, ErrFormat) {
				t.Fatalf("%s: %v", tc.why, err)
			}
			for _, part := range tc.wrong {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error must name %q, got %v", tc.why, part, err)
				}
			}
			_, out, made := runMkfs(t, tc.fsType, size, tc.options.arguments(tc.fsType))
			if want := tc.wrong == nil || tc.stricter || onlyOurs(tc.fsType, tc.options); made != want {
				t.Errorf("%s: mkfs made it: %t, want %t: %s", tc.why, made, want, out)
			}
		})
	}
}

// onlyOurs: options that have no argument of mkfs.xfs, and are refused for that.
func onlyOurs(t Type, o FormatOptions) bool {
	return t == XFS && o.BlockBytes == 0 && o.InodeBytes == 0
}

// makeOn makes a filesystem on a sparse file.
func makeOn(t *testing.T, fsType Type, size int64, options FormatOptions) (device string) {
	t.Helper()
	device, out, made := runMkfs(t, fsType, size, options.arguments(fsType))
	if !made {
		t.Fatal(out)
	}
	return device
}

func runMkfs(t *testing.T, fsType Type, size int64, args []string) (device, out string, made bool) {
	t.Helper()
	device = filepath.Join(t.TempDir(), "device")
	if err := errors.Join(os.WriteFile(device, nil, 0o600), os.Truncate(device, size)); err != nil {
		t.Fatal(err)
	}
	force := "-F"
	if fsType == XFS {
		force = "-f"
	}
	text, err := exec.CommandContext(t.Context(), "mkfs."+string(fsType), append(args, force, device)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return device, string(text), err == nil
}

func TestFormatSizeUnknown(t *testing.T) {
	if err := (FormatOptions{Inodes: maxInodes}).Check(Ext4, 0); err != nil {
		t.Errorf("the number of inodes is not judged by a size that is not known: %v", err)
	}
	if err := (FormatOptions{}).Check("btrfs", 0); !errors.Is(err, ErrFormat) {
		t.Errorf("a filesystem that is not made has no options: %v", err)
	}
}

func TestFormatArguments(t *testing.T) {
	all := FormatOptions{BlockBytes: 1024, InodeBytes: 512, BytesPerInode: 8192, Inodes: 7, BigAlloc: true, ClusterBytes: 16384, Encrypt: true}
	for name, tc := range map[string]struct {
		why     string
		fsType  Type
		options FormatOptions
		want    []string
	}{
		"none":    {"mkfs chooses", Ext4, FormatOptions{}, nil},
		"ext4":    {"features go in one argument", Ext4, all, []string{"-b", "1024", "-I", "512", "-i", "8192", "-N", "7", "-C", "16384", "-O", "bigalloc,encrypt"}},
		"encrypt": {"one feature", Ext4, FormatOptions{Encrypt: true}, []string{"-O", "encrypt"}},
		"xfs":     {"xfs has two of them", XFS, FormatOptions{BlockBytes: 1024, InodeBytes: 512}, []string{"-b", "size=1024", "-i", "size=512"}},
	} {
		if diff := cmp.Diff(tc.want, tc.options.arguments(tc.fsType)); diff != "" {
			t.Errorf("%s: %s (-want +got)\n%s", name, tc.why, diff)
		}
	}
}
