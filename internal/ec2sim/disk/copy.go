//go:build linux

package disk

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// stampTick is how coarse the time that a write leaves on a file may be: a
// write that young hides another.
const stampTick = 10 * time.Millisecond

// errRestless: the source never rested long enough to be copied.
var errRestless = errors.New("the volume is written to without a pause, so that no copy shows one point in time")

// copied is one file and the copy that is made of it.
type copied struct{ from, to string }

// copyAtRest copies files as they are together at one point in time: one file
// by reference where the filesystem can, else all again and again until none
// was written to meanwhile. (The kernel stamps every write of a loop device on
// the file.) After an error there may be copies, of no use.
func copyAtRest(files []copied, patience time.Duration) error {
	err := errRestless
	for begin := time.Now(); errors.Is(err, errRestless) && time.Since(begin) < patience; {
		err = copyTogether(files)
	}
	return err
}

// copyTogether copies files once; errRestless if one was written to meanwhile.
func copyTogether(files []copied) error {
	before, err := stamps(files)
	if err != nil {
		return err
	}
	settled := !slices.ContainsFunc(before, func(t time.Time) bool { return time.Since(t) <= stampTick })
	cloned := true
	for _, f := range files {
		byReference, err := copyOnce(f.from, f.to)
		if err != nil {
			return err
		}
		cloned = cloned && byReference
	}
	if cloned && len(files) == 1 {
		return nil
	}
	after, err := stamps(files)
	if err != nil {
		return err
	}
	if !settled || !slices.EqualFunc(before, after, time.Time.Equal) {
		return errRestless
	}
	return nil
}

// stamps are when the files were last written to.
func stamps(files []copied) ([]time.Time, error) {
	var out []time.Time
	for _, f := range files {
		t, err := stamp(f.from)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// stamp is when the file was last written to.
func stamp(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
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
