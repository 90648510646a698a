package loopdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollEvery is how often Free looks whether a device is free: the kernel detaches
// lazily while something still has it open.
const pollEvery = 20 * time.Millisecond

// loopMajor is the device major of loop devices (devices.txt of the kernel).
const loopMajor = 7

// file identifies a file on this machine.
type file struct{ dev, inode uint64 }

// loop is one configured loop device.
type loop struct {
	number  int
	backing file
	// on is the number of the loop device that is the backing file, -1 if it
	// is a regular file.
	on int
}

// Below lists the numbers of the loop devices that belong to the folder, those
// on top of others last.
func Below(dir string) ([]int, error) {
	loops, err := configured()
	if err != nil || len(loops) == 0 {
		return nil, err
	}
	files, err := filesBelow(dir)
	if err != nil {
		return nil, err
	}
	return owned(loops, files), nil
}

// owned decides which loops belong to the files, transitively.
func owned(loops []loop, files map[file]bool) []int {
	var mine []int
	for _, l := range loops {
		if l.on < 0 && files[l.backing] {
			mine = append(mine, l.number)
		}
	}
	for grew := true; grew; {
		grew = false
		for _, l := range loops {
			if l.on >= 0 && slices.Contains(mine, l.on) && !slices.Contains(mine, l.number) {
				mine = append(mine, l.number)
				grew = true
			}
		}
	}
	return mine
}

// Free detaches every loop device that belongs to the folder and waits until the
// kernel has let go of them. It returns how many there were.
func Free(ctx context.Context, dir string) (int, error) {
	mine, err := Below(dir)
	if err != nil {
		return 0, err
	}
	first := len(mine)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for len(mine) > 0 {
		for _, n := range slices.Backward(mine) {
			if err := detach(n); err != nil {
				return first, err
			}
		}
		if mine, err = Below(dir); err != nil || len(mine) == 0 {
			return first, err
		}
		select {
		case <-ctx.Done():
			return first, fmt.Errorf("free loop devices %v of %s: still in use: %w", mine, dir, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return first, nil
}

func detach(number int) error {
	path := devicePath(number)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s to free it: %w", path, err)
	}
	defer f.Close()
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) { // ENXIO: not configured any more
		return fmt.Errorf("free %s: %w", path, err)
	}
	return nil
}

// configured lists the loop devices of the machine that have a backing file.
func configured() ([]loop, error) {
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var out []loop
	for _, p := range paths {
		n, err := strconv.Atoi(strings.TrimPrefix(strings.Split(p, "/")[3], "loop"))
		if err != nil {
			continue
		}
		l, ok, err := status(n)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, l)
		}
	}
	return out, nil
}

// status asks the kernel what is behind a loop device. The answer is false for
// one that has been freed in the meantime.
func status(number int) (loop, bool, error) {
	path := devicePath(number)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return loop{}, false, nil
	}
	if err != nil {
		return loop{}, false, fmt.Errorf("look at %s: %w", path, err)
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return loop{}, false, nil
	}
	if err != nil {
		return loop{}, false, fmt.Errorf("look at %s: %w", path, err)
	}
	l := loop{number: number, backing: file{dev: info.Device, inode: info.Inode}, on: -1}
	// The kernel encodes device numbers here as stat(2) does (huge_encode_dev).
	if info.Rdevice != 0 && unix.Major(info.Rdevice) == loopMajor {
		l.on = int(unix.Minor(info.Rdevice))
	}
	return l, true, nil
}

func devicePath(number int) string { return "/dev/loop" + strconv.Itoa(number) }

// filesBelow collects the identities of the regular files in a folder, without
// leaving its filesystem.
func filesBelow(dir string) (map[file]bool, error) {
	out := map[file]bool{}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // removed while we walk
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			out[file{dev: st.Dev, inode: st.Ino}] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files of %s: %w", dir, err)
	}
	return out, nil
}
