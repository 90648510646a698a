package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a block device of this instance.
type Device struct {
	// Name is the kernel's name, as in /sys/class/block.
	Name string
	// Path is the device node.
	Path string
	// Major and Minor are the device number.
	Major, Minor uint32
	// SizeBytes is the size that the kernel sees.
	SizeBytes int64
	// ReadOnly is the kernel's read-only flag of the device.
	ReadOnly bool
}

// SameNumber reports whether the device has this number.
func (d Device) SameNumber(major, minor uint32) bool {
	return d.Major == major && d.Minor == minor
}

// Tree is where the kernel's view is read. The zero value is this machine's.
type Tree struct {
	Sys string // "" means /sys
	Dev string // "" means /dev

	// nodeNumber replaces statNode in tests that cannot make device nodes.
	nodeNumber func(path string) (major, minor uint32, block bool, err error)
}

func (t Tree) sys(elem ...string) string {
	return filepath.Join(append([]string{orDefault(t.Sys, "/sys")}, elem...)...)
}

func (t Tree) dev(elem ...string) string {
	return filepath.Join(append([]string{orDefault(t.Dev, "/dev")}, elem...)...)
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// ByName reads a device that the kernel calls name.
func (t Tree) ByName(name string) (Device, error) {
	number, err := t.attribute(name, "dev")
	if err != nil {
		return Device{}, err
	}
	d := Device{Name: name, Path: t.dev(name)}
	if _, err := fmt.Sscanf(number, "%d:%d", &d.Major, &d.Minor); err != nil {
		return Device{}, fmt.Errorf("read the number of %s from %q: %w", name, number, err)
	}
	size, err := t.attribute(name, "size")
	if err != nil {
		return Device{}, err
	}
	sectors, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return Device{}, fmt.Errorf("read the size of %s: %w", name, err)
	}
	d.SizeBytes = sectors * sectorBytes
	readOnly, err := t.attribute(name, "ro")
	if err != nil {
		return Device{}, err
	}
	d.ReadOnly = readOnly != "0"
	return d, nil
}

// sectorBytes is the unit of sysfs sizes, whatever the disk's own sector size.
const sectorBytes = 512

// ByNumber reads the device with this number.
func (t Tree) ByNumber(major, minor uint32) (Device, error) {
	path, err := filepath.EvalSymlinks(t.sys("dev", "block", fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return Device{}, fmt.Errorf("device %d:%d: %w", major, minor, err)
	}
	return t.ByName(filepath.Base(path))
}

// attribute reads a file of /sys/class/block/<name>.
func (t Tree) attribute(name string, elem ...string) (string, error) {
	data, err := os.ReadFile(t.sys(append([]string{"class", "block", name}, elem...)...))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}

// diskOf returns the disk that holds a partition, or the name itself.
func (t Tree) diskOf(name string) (string, error) {
	if _, err := t.attribute(name, "partition"); err != nil {
		if os.IsNotExist(err) {
			return name, nil
		}
		return "", err
	}
	path, err := filepath.EvalSymlinks(t.sys("class", "block", name))
	if err != nil {
		return "", err
	}
	return filepath.Base(filepath.Dir(path)), nil
}

// checkNode makes sure that the device node leads to the device: a node left
// over from an earlier disk of that name would lead somewhere else.
func (t Tree) checkNode(d Device) error {
	number := t.nodeNumber
	if number == nil {
		number = statNode
	}
	major, minor, block, err := number(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("device node %s: %w: %w", d.Path, err, ErrNoDevice)
	case err != nil:
		return fmt.Errorf("device node %s: %w", d.Path, err)
	case !block:
		return fmt.Errorf("%s is no block device: %w", d.Path, ErrWrongDevice)
	case !d.SameNumber(major, minor):
		return fmt.Errorf("%s is device %d:%d, the kernel's %s is %d:%d: %w",
			d.Path, major, minor, d.Name, d.Major, d.Minor, ErrWrongDevice)
	}
	return nil
}

// statNode reads the number of a device node.
func statNode(path string) (major, minor uint32, block bool, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, 0, false, err
	}
	return unix.Major(stat.Rdev), unix.Minor(stat.Rdev), stat.Mode&unix.S_IFMT == unix.S_IFBLK, nil
}
