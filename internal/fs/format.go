package fs

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// FormatOptions is what a class asks of mkfs. The zero value of a field leaves
// the choice to mkfs. They act when a filesystem is made and at no other time:
// a volume that has one keeps it, a restored or copied one too.
type FormatOptions struct {
	BlockBytes    int64 // ext3, ext4, xfs
	InodeBytes    int64 // ext3, ext4, xfs
	BytesPerInode int64 // ext3, ext4: one inode for so many bytes of the device
	Inodes        int64 // ext3, ext4: goes before BytesPerInode, as with mkfs
	BigAlloc      bool  // ext4: space is given out in clusters of several blocks
	ClusterBytes  int64 // ext4 with BigAlloc
	Encrypt       bool  // ext4: folders may be encrypted (fscrypt)
}

// ErrFormat says that mkfs would refuse the options. Test with errors.Is.
var ErrFormat = errors.New("mkfs would refuse it")

// Defaults of mkfs for devices of 512 MiB and more (mke2fs.conf(5), mkfs.xfs(8));
// the smallest EBS volume has 1 GiB.
const (
	defaultBlockBytes = 4096
	defaultInodeBytes = 256
	maxInodes         = 1<<32 - 1
)

// What mke2fs(8) makes.
const (
	minExtBlock, maxExtBlock     = 1 << 10, 64 << 10
	minExtCluster, maxExtCluster = 2 << 10, 256 << 20
)

// span is a range of powers of two, or of whole numbers.
type span struct {
	least, most int64
	power       bool
}

func (s span) holds(n int64) bool {
	return n >= s.least && n <= s.most && (!s.power || bits.OnesCount64(uint64(n)) == 1)
}

func (s span) String() string {
	if s.power {
		return fmt.Sprintf("a power of two from %d to %d", s.least, s.most)
	}
	return fmt.Sprintf("a whole number from %d to %d", s.least, s.most)
}

// Check says whether mkfs takes the options for a filesystem of this type on a
// device of a size, 0 for one that is not known. The rules are those of mke2fs
// 1.47 and of mkfs.xfs 6.1 for filesystems with checksums, its default. Blocks
// larger than a page of memory are made, and mounted where the node's kernel can.
func (o FormatOptions) Check(t Type, deviceBytes int64) error {
	var err error
	switch t {
	case XFS:
		err = o.checkXFS()
	case Ext3:
		err = errors.Join(o.refuse(t, Ext4, o.ext4Only()), o.checkExt(deviceBytes))
	case Ext4:
		err = errors.Join(o.checkExt(deviceBytes), o.checkClusters())
		if err == nil {
			err = o.checkClusterInodes(deviceBytes)
		}
	default:
		return fmt.Errorf("filesystem %q has no format options: %w", t, ErrFormat)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", ErrFormat, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// ext4Only names the options that are set and that ext4 alone has.
func (o FormatOptions) ext4Only() []string {
	return names(named{"ext4BigAlloc", o.BigAlloc}, named{"ext4ClusterSize", o.ClusterBytes != 0}, named{"ext4EncryptionSupport", o.Encrypt})
}

type named struct {
	name string
	set  bool
}

func names(all ...named) []string {
	var set []string
	for _, n := range all {
		if n.set {
			set = append(set, n.name)
		}
	}
	return set
}

// refuse is an error that names options that a filesystem does not have.
func (FormatOptions) refuse(t, instead Type, options []string) error {
	if len(options) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s has no such option, use %s", strings.Join(options, ", "), t, instead)
}

func (o FormatOptions) checkXFS() error {
	ext := append(names(named{"bytesPerInode", o.BytesPerInode != 0}, named{"numberOfInodes", o.Inodes != 0}), o.ext4Only()...)
	return errors.Join(
		o.refuse(XFS, Ext4, ext),
		within("blockSize", o.BlockBytes, span{1024, 64 << 10, true}, ""),
		within("inodeSize", o.InodeBytes, span{512, min(2048, o.blockBytes()/2), true}, " (half a block at most)"),
	)
}

func (o FormatOptions) checkExt(deviceBytes int64) error {
	return errors.Join(
		within("blockSize", o.BlockBytes, span{minExtBlock, maxExtBlock, true}, ""),
		within("inodeSize", o.InodeBytes, span{128, o.blockBytes(), true}, " (a block at most)"),
		within("bytesPerInode", o.BytesPerInode, span{1024, 64 << 20, false}, ""),
		within("numberOfInodes", o.Inodes, span{1, maxInodes, false}, ""),
		o.checkInodeTable(deviceBytes),
	)
}

// checkInodeTable refuses inodes that would take the whole device.
func (o FormatOptions) checkInodeTable(deviceBytes int64) error {
	size := cmp.Or(o.InodeBytes, defaultInodeBytes)
	switch {
	case o.Inodes != 0 && deviceBytes != 0 && o.Inodes >= (deviceBytes+size-1)/size:
		return fmt.Errorf("numberOfInodes %d of %d bytes each leave nothing of a volume of %d bytes: allowed are less than %d", o.Inodes, size, deviceBytes, (deviceBytes+size-1)/size)
	case o.Inodes == 0 && o.BytesPerInode != 0 && o.BytesPerInode <= size:
		return fmt.Errorf("bytesPerInode %d with inodes of %d bytes leaves no room for data: allowed is more than %d", o.BytesPerInode, size, size)
	}
	return nil
}

func (o FormatOptions) checkClusters() error {
	if o.ClusterBytes != 0 && !o.BigAlloc {
		return fmt.Errorf("ext4ClusterSize %d: it needs ext4BigAlloc to be true", o.ClusterBytes)
	}
	return within("ext4ClusterSize", o.ClusterBytes, span{max(minExtCluster, o.blockBytes()), maxExtCluster, true}, " (a block at least)")
}

// checkClusterInodes: the bitmap of a group's inodes is one block. Without
// clusters mke2fs makes groups smaller until their inodes fit, with clusters it
// gives up.
func (o FormatOptions) checkClusterInodes(deviceBytes int64) error {
	inodes := o.Inodes
	if inodes == 0 && o.BytesPerInode != 0 {
		inodes = deviceBytes / o.BytesPerInode
	}
	if !o.BigAlloc || inodes == 0 || deviceBytes == 0 {
		return nil
	}
	cluster := cmp.Or(o.ClusterBytes, 16*o.blockBytes())
	groupBytes := groupClusters(o.blockBytes()) * cluster
	groups := (deviceBytes + groupBytes - 1) / groupBytes
	if most := groups * 8 * o.blockBytes(); inodes > most {
		return fmt.Errorf("numberOfInodes or bytesPerInode: %d inodes on %d bytes in clusters of %d: allowed are %d, choose fewer or a smaller ext4ClusterSize", inodes, deviceBytes, cluster, most)
	}
	return nil
}

// groupClusters is how many clusters (blocks, where there are none) a block
// group has: as many as a block has bits, within 16 bits.
func groupClusters(blockBytes int64) int64 { return min(8*blockBytes, 1<<16-8) }

// crowded says whether the options may ask for more inodes than block groups of
// the usual size hold, one for each block: mke2fs makes the groups smaller then.
func (o FormatOptions) crowded() bool {
	return !o.BigAlloc && (o.Inodes != 0 || o.BytesPerInode != 0 && o.BytesPerInode < o.blockBytes())
}

func (o FormatOptions) blockBytes() int64 { return cmp.Or(o.BlockBytes, defaultBlockBytes) }

// within judges an option that is set.
func within(name string, n int64, allowed span, note string) error {
	if n == 0 || allowed.holds(n) {
		return nil
	}
	return fmt.Errorf("%s %d: allowed is %s%s", name, n, allowed, note)
}

// arguments are the options as mkfs of the type takes them: numbers that we
// have read, and words of our own, so that no text of a class is ever an argument.
func (o FormatOptions) arguments(t Type) []string {
	var args []string
	number := func(flag, prefix string, n int64) {
		if n != 0 {
			args = append(args, flag, prefix+strconv.FormatInt(n, 10))
		}
	}
	if t == XFS {
		number("-b", "size=", o.BlockBytes)
		number("-i", "size=", o.InodeBytes)
		return args
	}
	number("-b", "", o.BlockBytes)
	number("-I", "", o.InodeBytes)
	number("-i", "", o.BytesPerInode)
	number("-N", "", o.Inodes)
	number("-C", "", o.ClusterBytes)
	features := names(named{"bigalloc", o.BigAlloc}, named{"encrypt", o.Encrypt})
	if len(features) > 0 {
		// All in one argument, which every mke2fs takes.
		args = append(args, "-O", strings.Join(features, ","))
	}
	return args
}
