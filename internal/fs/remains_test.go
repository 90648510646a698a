package fs

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// extImage is a device that holds no more of an ext filesystem than a copy of
// its superblock and the head of its journal.
type extImage struct {
	logBlock     uint32 // block size is 1 KiB << logBlock
	group        uint16 // the copy's own idea of where it is
	journal      bool
	extents      bool
	sequence     uint32
	journalStart uint32
	noBackup     bool
}

// journalAt is the journal's first block in these images.
const journalAt = 40

func (e extImage) build(size, offset int64) io.ReaderAt {
	device := make([]byte, size)
	superblock := device[offset : offset+1024]
	little, big := binary.LittleEndian, binary.BigEndian
	little.PutUint32(superblock[0x18:], e.logBlock)
	little.PutUint16(superblock[0x38:], 0xEF53)
	little.PutUint16(superblock[0x5A:], e.group)
	little.PutUint32(superblock[0x20:], 8192<<e.logBlock)
	if e.logBlock == 0 {
		little.PutUint32(superblock[0x14:], 1)
	}
	if !e.journal {
		return bytes.NewReader(device)
	}
	little.PutUint32(superblock[0x5C:], 0x4)
	if !e.noBackup {
		superblock[0xFD] = 1
	}
	inode := superblock[0x10C:]
	if e.extents {
		little.PutUint16(inode, 0xF30A)
		little.PutUint16(inode[2:], 1)
		little.PutUint32(inode[12+8:], journalAt)
	} else {
		little.PutUint32(inode, journalAt)
	}
	journal := device[journalAt<<10<<e.logBlock:]
	big.PutUint32(journal, 0xC03B3998)
	big.PutUint32(journal[0x18:], e.sequence)
	big.PutUint32(journal[0x1C:], e.journalStart)
	return bytes.NewReader(device)
}

func TestScanRemains(t *testing.T) {
	const copyOf1K = (8192 + 1) << 10
	const copyOf2K = 16384 * 2048
	const copyOf4K = 32768 * 4096
	ext4 := extImage{logBlock: 2, group: 1, journal: true, extents: true, sequence: 7}
	with := func(change func(e *extImage)) extImage {
		e := ext4
		change(&e)
		return e
	}
	for name, tc := range map[string]struct {
		why    string
		image  extImage
		offset int64
		want   *remains
	}{
		"used ext4":  {"its journal has been written to", ext4, copyOf4K, &remains{copyOf4K, true}},
		"fresh ext4": {"mkfs was cut off before the superblock", with(func(e *extImage) { e.sequence = 1 }), copyOf4K, &remains{copyOf4K, false}},
		"in use":     {"the journal is to be replayed", with(func(e *extImage) { e.sequence, e.journalStart = 1, 1 }), copyOf4K, &remains{copyOf4K, true}},
		"ext3": {
			"the journal's inode has no extents",
			with(func(e *extImage) { e.extents, e.sequence, e.logBlock = false, 1, 0 }), copyOf1K, &remains{copyOf1K, false},
		},
		"2 KiB blocks":    {"the copy is elsewhere", with(func(e *extImage) { e.logBlock = 1 }), copyOf2K, &remains{copyOf2K, true}},
		"no journal":      {"nothing tells that it was never used", extImage{logBlock: 2, group: 1}, copyOf4K, &remains{copyOf4K, true}},
		"unknown journal": {"nothing tells where the journal is", with(func(e *extImage) { e.sequence, e.noBackup = 1, true }), copyOf4K, &remains{copyOf4K, true}},
		"other group":     {"a superblock that belongs elsewhere is a file's content", with(func(e *extImage) { e.group = 0 }), copyOf4K, nil},
		"other size":      {"a block size that puts the copy elsewhere", with(func(e *extImage) { e.logBlock = 0 }), copyOf4K, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := scanRemains(tc.image.build(copyOf4K+1<<20, tc.offset))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(remains{})); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
	if got, err := scanRemains(bytes.NewReader(make([]byte, 1<<20))); got != nil || err != nil {
		t.Errorf("a device that ends before the first copy has none: %v, %v", got, err)
	}
}

// TestFindRemains: whatever options a filesystem was made with, the copy of its
// superblock is found once its beginning is gone.
func TestFindRemains(t *testing.T) {
	for name, options := range map[string]FormatOptions{
		"as mke2fs likes":         {},
		"blocks of 1 KiB":         {BlockBytes: 1024},
		"blocks of 2 KiB":         {BlockBytes: 2048},
		"blocks of 8 KiB":         {BlockBytes: 8192},
		"clusters":                {BigAlloc: true},
		"clusters of 8 KiB":       {BigAlloc: true, ClusterBytes: 8192},
		"1 KiB in clusters":       {BigAlloc: true, BlockBytes: 1024},
		"8 KiB in clusters":       {BigAlloc: true, BlockBytes: 8192, ClusterBytes: 16384},
		"other inodes":            {InodeBytes: 512, BytesPerInode: 8192},
		"folders to be encrypted": {Encrypt: true},
		"an inode for each KiB":   {BytesPerInode: 1024},
		"and blocks of 1 KiB":     {BlockBytes: 1024, Inodes: 6_000_000},
		"few inodes":              {Inodes: 5000},
	} {
		t.Run(name, func(t *testing.T) {
			device := makeOn(t, Ext4, 3*gib, options)
			place := groupOne(t, device)
			if err := clearHead(device); err != nil {
				t.Fatal(err)
			}
			found, err := findRemains(device, options)
			if diff := cmp.Diff(&remains{offset: place}, found, cmp.AllowUnexported(remains{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

// groupOne is where the superblock says that block group 1 begins.
func groupOne(t *testing.T, device string) int64 {
	t.Helper()
	head, err := readEnds(device)
	if err != nil {
		t.Fatal(err)
	}
	superblock, little := head[1024:], binary.LittleEndian
	blocks := int64(little.Uint32(superblock[0x14:])) + int64(little.Uint32(superblock[0x20:]))
	return blocks * (1024 << little.Uint32(superblock[0x18:]))
}

// A device that is empty, or ends within the first group, has no copy.
func TestScanCrowdedFindsNothing(t *testing.T) {
	for _, size := range []int64{0, 1 << 20, 1<<20 + 1, 200 << 20} {
		device := bytes.NewReader(make([]byte, size))
		if got, err := scanCrowded(device, 4096); got != nil || err != nil {
			t.Errorf("%d bytes: %v, %v", size, got, err)
		}
	}
}
