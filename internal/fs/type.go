package fs

import (
	"errors"
	"fmt"
	"strings"
)

// Type is a filesystem that Holdfast makes and mounts.
type Type string

// The types.
const (
	Ext3 Type = "ext3"
	Ext4 Type = "ext4"
	XFS  Type = "xfs"
)

// DefaultType is what a volume gets whose class names no filesystem.
const DefaultType = Ext4

// ParseType reads a type as StorageClasses spell it: without regard to case,
// empty for the default.
func ParseType(s string) (Type, error) {
	switch t := Type(strings.ToLower(s)); t {
	case "":
		return DefaultType, nil
	case Ext3, Ext4, XFS:
		return t, nil
	}
	return "", fmt.Errorf("filesystem %q is not supported: use %s, %s or %s", s, Ext4, Ext3, XFS)
}

// MountsAs reports whether a mount of this type, as the kernel names it, is what
// a class that wants t gets.
func MountsAs(mounted string, t Type) bool {
	return mounted == string(t) || mounted == string(Ext3) && t == Ext4
}

// Errors that callers branch on. Test with errors.Is.
var (
	// ErrContent: the device holds something that is not the wanted filesystem.
	ErrContent = errors.New("device holds something else")
	// ErrUnreadable: what the device holds could not be read.
	ErrUnreadable = errors.New("cannot tell what the device holds")
	// ErrDamaged: the filesystem has errors that fsck does not repair unasked.
	ErrDamaged = errors.New("filesystem has errors that need a person")
	// ErrConflict: something else is mounted at the path.
	ErrConflict = errors.New("something else is mounted there")
	// ErrNotMounted: nothing is mounted at the path.
	ErrNotMounted = errors.New("nothing is mounted there")
	// ErrNotWritable: a filesystem is mounted and cannot be written to.
	ErrNotWritable = errors.New("filesystem cannot be written to")
)
