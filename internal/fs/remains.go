package fs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// An ext filesystem whose beginning was overwritten looks empty to blkid, and
// everything in it can still be saved with the copies of the superblock that it
// keeps (e2fsck -b). findRemains looks for the first copy before anything is
// formatted. A mkfs that was cut off leaves copies too, and no superblock, since
// that is what it writes last; but its journal has never been used, so that
// nobody can have mounted it and stored anything.
//
// Layout: Linux, Documentation/filesystems/ext4/{super,journal,ifork}.rst.

// extCopies are the places of the first copy, in block group 1, for each size of
// block and, with bigalloc, of cluster that mke2fs makes. Where inodes are so many
// that mke2fs makes the groups smaller the copy is elsewhere, see scanCrowded.
var extCopies = func() []int64 {
	// With blocks of 1 KiB and no clusters the first group begins at block 1.
	places := map[int64]bool{(8<<10 + 1) << 10: true}
	for block := int64(minExtBlock); block <= maxExtBlock; block *= 2 {
		for cluster := block; cluster <= maxExtCluster; cluster *= 2 {
			places[groupClusters(block)*cluster] = true
		}
	}
	return slices.Sorted(maps.Keys(places))
}()

// remains is a superblock's copy.
type remains struct {
	offset int64 // where it is, in bytes
	used   bool  // somebody has mounted the filesystem to write
}

// findRemains returns the copy of an ext superblock, nil if there is none. The
// options are those that a filesystem on the device would have been made with.
func findRemains(device string, options FormatOptions) (*remains, error) {
	file, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found, err := scanRemains(file)
	if found != nil || err != nil || !options.crowded() {
		return found, err
	}
	return scanCrowded(file, options.blockBytes())
}

// scanCrowded looks through the whole first group for the copy of a filesystem
// whose groups are smaller than usual, by any multiple of eight blocks. It reads
// up to 128 MiB with blocks of 4 KiB, and so is for classes that ask for it.
func scanCrowded(device io.ReaderAt, blockBytes int64) (*remains, error) {
	step := 8 * blockBytes
	chunk := make([]byte, max(step, 1<<20))
	begin := int64(0)
	if blockBytes == minExtBlock {
		begin = blockBytes // groups begin at block 1
	}
	for at := begin; at < groupClusters(blockBytes)*blockBytes; at += int64(len(chunk)) {
		n, err := device.ReadAt(chunk, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		for i := int64(0); i+superblockBytes <= int64(n); i += step {
			if found, err := remainsAt(device, chunk[i:i+superblockBytes], at+i); found != nil || err != nil {
				return found, err
			}
		}
		if err != nil {
			break // the device ends here
		}
	}
	return nil, nil
}

func scanRemains(device io.ReaderAt) (*remains, error) {
	for _, place := range extCopies {
		superblock := make([]byte, superblockBytes)
		_, err := device.ReadAt(superblock, place)
		if errors.Is(err, io.EOF) {
			return nil, nil // the device ends before
		}
		if err != nil {
			return nil, err
		}
		if found, err := remainsAt(device, superblock, place); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

const superblockBytes = 1024

// remainsAt says what was read at a place of a device, nil for no superblock's copy.
func remainsAt(device io.ReaderAt, superblock []byte, place int64) (*remains, error) {
	blockBytes, ok := isExtCopy(superblock, place)
	if !ok {
		return nil, nil
	}
	used, err := journalUsed(device, superblock, blockBytes)
	return &remains{offset: place, used: used}, err
}

// isExtCopy reports whether this is the copy of a superblock in group 1 of an
// ext filesystem that would have it at this place, and the size of its blocks.
func isExtCopy(superblock []byte, place int64) (blockBytes int64, ok bool) {
	const magic, mostLog = 0xEF53, 6
	little := binary.LittleEndian
	log := little.Uint32(superblock[0x18:])
	if little.Uint16(superblock[0x38:]) != magic || little.Uint16(superblock[0x5A:]) != 1 || log > mostLog {
		return 0, false
	}
	blockBytes = minExtBlock << log
	firstBlock, groupBlocks := int64(little.Uint32(superblock[0x14:])), int64(little.Uint32(superblock[0x20:]))
	return blockBytes, (firstBlock+groupBlocks)*blockBytes == place
}

// journalUsed reports whether the filesystem's journal has ever been written
// to. What cannot be told counts as used.
func journalUsed(device io.ReaderAt, superblock []byte, blockBytes int64) (bool, error) {
	const hasJournal = 0x4
	if binary.LittleEndian.Uint32(superblock[0x5C:])&hasJournal == 0 {
		return true, nil
	}
	block, ok := journalBlock(superblock)
	if !ok {
		return true, nil
	}
	journal := make([]byte, 32)
	_, err := device.ReadAt(journal, block*blockBytes)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	if err != nil {
		return true, err
	}
	const magic, firstSequence = 0xC03B3998, 1
	big := binary.BigEndian
	fresh := big.Uint32(journal) == magic && big.Uint32(journal[0x18:]) == firstSequence && big.Uint32(journal[0x1C:]) == 0
	return !fresh, nil
}

// journalBlock reads the journal's first block from the copy of its inode in
// the superblock: the first extent where the inode has extents (ext4), else the
// first direct block (ext3). ok is false for what is neither.
func journalBlock(superblock []byte) (block int64, ok bool) {
	const backedUp, extentMagic = 1, 0xF30A
	little := binary.LittleEndian
	inode := superblock[0x10C:]
	if superblock[0xFD] != backedUp {
		return 0, false
	}
	if little.Uint16(inode) != extentMagic {
		return int64(little.Uint32(inode)), little.Uint32(inode) != 0
	}
	entries, depth := little.Uint16(inode[2:]), little.Uint16(inode[6:])
	if entries == 0 || depth != 0 {
		return 0, false
	}
	extent := inode[12:]
	return int64(little.Uint16(extent[6:]))<<32 | int64(little.Uint32(extent[8:])), true
}

// describe is what an operator reads about remains.
func (r remains) describe() string {
	return fmt.Sprintf("no filesystem at its beginning and the copy of an ext superblock at byte %d: "+
		"its data can be saved with e2fsck -b; to use the volume afresh, overwrite it with zeros", r.offset)
}
