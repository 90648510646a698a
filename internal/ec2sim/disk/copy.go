//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stillTries is how often a copy is made anew because the source was written
// to meanwhile.
const stillTries = 20

// errRestless: the source never rested long enough to be copied.
var errRestless = errors.New("the volume is written to without a pause, so that no copy shows one point in time")

// copyStill copies a file as it is at one point in time: by reference where
// the filesystem can, else again and again until nothing was written during a
// copy. (The kernel stamps every write of a loop device on the file.)
func copyStill(from, to string) error {
	for range stillTries {
		before, err := stamp(from)
		if err != nil {
			return err
		}
		cloned, err := copyOnce(from, to)
		if err != nil {
			return err
		}
		after, err := stamp(from)
		if err != nil {
			return err
		}
		if cloned || before == after {
			return nil
		}
	}
	return errors.Join(errRestless, os.Remove(to))
}

// stamp changes with every write.
func stamp(path string) (unix.Timespec, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return unix.Timespec{}, fmt.Errorf("%s: %w", path, err)
	}
	return st.Mtim, nil
}

// copyFile copies a file that nobody writes to.
func copyFile(from, to string) error {
	_, err := copyOnce(from, to)
	return err
}

// copyOnce copies a file with its holes; true if it is a clone, which is made
// at one instant.
func copyOnce(from, to string) (bool, error) {
	src, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	cloned := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
	if !cloned {
		err = copySparse(src, dst)
	}
	if err := errors.Join(err, dst.Close()); err != nil {
		return false, errors.Join(err, os.Remove(to))
	}
	return cloned, nil
}

func copySparse(src, dst *os.File) error {
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no data behind
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := dst.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := src.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(dst, src, hole-data); err != nil {
			return err
		}
		at = hole
	}
}
