//go:build linux

package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// loopMajor is the major number of loop devices.
const loopMajor = 7

// loopTries is how often another process may take the free loop device first.
const loopTries = 100

func loopName(n int) string { return "loop" + strconv.Itoa(n) }

func (f *Files) loopPath(n int) string { return filepath.Join(f.machineDev, loopName(n)) }

// makeLoop sets up a free loop device on a file.
func (f *Files) makeLoop(path string) (int, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	control, err := os.OpenFile(filepath.Join(f.machineDev, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("no loop devices: %w", err)
	}
	defer control.Close()
	for range loopTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return 0, fmt.Errorf("no free loop device: %w", err)
		}
		err = f.configure(n, file, path)
		if errors.Is(err, unix.EBUSY) { // another process was faster
			continue
		}
		return n, err
	}
	return 0, fmt.Errorf("no free loop device after %d tries", loopTries)
}

func (f *Files) configure(n int, file *os.File, path string) error {
	dev, err := f.openLoop(n)
	if err != nil {
		return err
	}
	defer dev.Close()
	cfg := unix.LoopConfig{Fd: uint32(file.Fd())}
	copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], path)
	err = unix.IoctlLoopConfigure(int(dev.Fd()), &cfg)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) { // before Linux 5.8
		err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_FD, int(file.Fd()))
		if err == nil {
			err = unix.IoctlLoopSetStatus64(int(dev.Fd()), &cfg.Info)
		}
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", dev.Name(), err)
	}
	return nil
}

// openLoop opens a loop device, whose node is made if the machine lacks it.
func (f *Files) openLoop(n int) (*os.File, error) {
	dev, err := os.OpenFile(f.loopPath(n), os.O_RDWR, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return dev, err
	}
	if err := unix.Mknod(f.loopPath(n), unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("device node %s: %w", f.loopPath(n), err)
	}
	return os.OpenFile(f.loopPath(n), os.O_RDWR, 0)
}

// loopsOn are the loop devices whose backing file is the file at path, by
// device and inode: names are as the attaching process saw them.
func (f *Files) loopsOn(path string) ([]int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	bound, err := boundLoops()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, n := range bound {
		if foreign(backingFile(n), filepath.Base(path)) {
			continue
		}
		info, err := f.status(n)
		if err != nil {
			return nil, err
		}
		if info != nil && info.Device == st.Dev && info.Inode == st.Ino {
			out = append(out, n)
		}
	}
	return out, nil
}

// loopsAbove are the loop devices on top of another one, as kubelet makes one on
// each raw block volume.
func (f *Files) loopsAbove(n int) ([]int, error) {
	bound, err := boundLoops()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, m := range bound {
		info, err := f.status(m)
		if err != nil {
			return nil, err
		}
		// The kernel encodes device numbers here as stat(2) does.
		if info != nil && info.Rdevice == unix.Mkdev(loopMajor, uint32(n)) {
			out = append(out, m)
		}
	}
	return out, nil
}

// boundLoops are the loop devices of the machine that have a backing file.
func boundLoops() ([]int, error) {
	paths, err := filepath.Glob(sysBlock + "/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, p := range paths {
		name := filepath.Base(filepath.Dir(filepath.Dir(p)))
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "loop")); err == nil {
			out = append(out, n)
		}
	}
	return out, nil
}

const sysBlock = "/sys/block"

func backingFile(n int) string { return filepath.Join(sysBlock, loopName(n), "loop", "backing_file") }

// foreign tells by the name in sysfs that a loop device is on another disk of
// ours, which saves opening it. Any other name proves nothing: the kernel
// shows the path as the attaching process saw it, and "/" once its mounts are
// gone.
func foreign(backingFile, name string) bool {
	raw, err := os.ReadFile(backingFile)
	if err != nil {
		return true // free meanwhile
	}
	have := filepath.Base(strings.TrimSuffix(strings.TrimSpace(string(raw)), " (deleted)"))
	return strings.HasSuffix(have, suffix) && have != name
}

// status is what a loop device is bound to, nil if it is free (again). One that
// this process may not open has not been bound by it.
func (f *Files) status(n int) (*unix.LoopInfo64, error) {
	dev, err := os.OpenFile(f.loopPath(n), os.O_RDONLY, 0)
	if err != nil {
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EACCES) {
			return nil, nil
		}
		return nil, err
	}
	defer dev.Close()
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", dev.Name(), err)
	}
	return info, nil
}

// claimed tells whether somebody has the device for himself, as a mount has.
func (f *Files) claimed(n int) bool {
	dev, err := os.OpenFile(f.loopPath(n), os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	_ = dev.Close()
	return false
}

// clearStack frees a loop device and those on top of it, which hold it open.
func (f *Files) clearStack(n int) error {
	above, err := f.loopsAbove(n)
	if err != nil {
		return err
	}
	for _, m := range above {
		if err := f.clearStack(m); err != nil {
			return err
		}
	}
	return f.clear(n)
}

// clear frees a loop device: at once, or when its last user closes it.
func (f *Files) clear(n int) error {
	dev, err := os.OpenFile(f.loopPath(n), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil // free already
	}
	if err := errors.Join(err, dev.Close()); err != nil {
		return fmt.Errorf("free %s: %w", loopName(n), err)
	}
	return nil
}

// readCapacity has the device take the size of its file.
func (f *Files) readCapacity(n int) error {
	dev, err := f.openLoop(n)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("new size of %s: %w", dev.Name(), err)
	}
	return nil
}
