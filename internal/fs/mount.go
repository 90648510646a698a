package fs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// Mounter makes, mounts and grows filesystems. It holds no state.
type Mounter struct {
	mounter mountutils.Interface
	exec    utilexec.Interface
	// bind is bindAtOnce; ENOSYS makes Bind do it in two steps.
	bind func(source, target string, readOnly bool) error
}

// NewMounter returns a Mounter that runs the tools in PATH.
func NewMounter() *Mounter {
	// Without systemd: in a container there is none to wrap mounts in scopes.
	return &Mounter{mounter: mountutils.NewWithoutSystemd(""), exec: utilexec.New(), bind: bindAtOnce}
}

// Request says what is to be mounted where.
type Request struct {
	Device   string // a proved device
	Target   string // made if it is absent
	Type     Type
	Options  []string
	ReadOnly bool
	Format   FormatOptions // for a filesystem that is made
}

// Outcome says what Mount did.
type Outcome struct {
	Type      Type
	Formatted bool
}

// Mount makes sure that the device holds a filesystem, and mounts it. See the
// package comment for what is done with which content.
func (m *Mounter) Mount(ctx context.Context, r Request) (Outcome, error) {
	found, err := probe(ctx, m.exec, r.Device, r.Format)
	if err != nil {
		return Outcome{}, err
	}
	do, as, err := decide(found, r.Type, r.ReadOnly)
	if err != nil {
		return Outcome{}, fmt.Errorf("%s holds %w", r.Device, err)
	}
	if do == reformat {
		if err := clearHead(r.Device); err != nil {
			return Outcome{}, fmt.Errorf("clear the unfinished filesystem on %s: %w", r.Device, err)
		}
	}
	if err := os.MkdirAll(r.Target, dirMode); err != nil {
		return Outcome{}, fmt.Errorf("make mount point: %w", err)
	}
	exec := withContext(ctx, m.exec)
	keep := &keeper{Interface: exec}
	if do == mountIt {
		exec = keep
	}
	run := mountutils.NewSafeFormatAndMount(boundMounter{m.mounter, ctx}, exec)
	err = run.FormatAndMountSensitiveWithFormatOptions(r.Device, r.Target, string(as), mountOptions(as, r.Options, r.ReadOnly), nil, r.Format.arguments(as))
	switch {
	case keep.refused:
		return Outcome{}, fmt.Errorf("%s held %s a moment ago and shows nothing now, it is not formatted: %w", r.Device, found.filesystem, ErrUnreadable)
	case err != nil:
		return Outcome{}, explainMount(ctx, err, r)
	}
	return Outcome{Type: as, Formatted: do != mountIt}, nil
}

// dirMode is the mode of mount points that we make; what is mounted there
// brings its own.
const dirMode = 0o750

// mountOptions completes the options of a filesystem's own mount.
func mountOptions(t Type, options []string, readOnly bool) []string {
	out := slices.Clone(options)
	add := func(option string) {
		if !slices.Contains(out, option) {
			out = append(out, option)
		}
	}
	if t == XFS {
		// A volume restored from a snapshot has its source's UUID, and xfs
		// refuses to mount the same UUID twice on one node (xfs(5)).
		add("nouuid")
	}
	if readOnly {
		add("ro")
	}
	return out
}

// explainMount gives mount-utils' errors our sentinels.
func explainMount(ctx context.Context, err error, r Request) error {
	var mountErr mountutils.MountError
	if errors.As(err, &mountErr) && mountErr.Type == mountutils.HasFilesystemErrors {
		return fmt.Errorf("%s: %w: run fsck on the volume by hand: %w", r.Device, ErrDamaged, err)
	}
	return withCause(ctx, fmt.Errorf("mount %s at %s: %w", r.Device, r.Target, err))
}

// withCause adds the context's end to an error of a command that it cut off:
// mount-utils keeps only the text.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// Point is one mount.
type Point struct {
	Path         string
	Major, Minor uint32 // device number of the filesystem
	Root         string // the folder (or file) of the filesystem that is seen at Path
	Type         string
	ReadOnly     bool // the mount, not what the kernel has made of its filesystem
	// Failed is how the kernel shows that it has shut the filesystem off against
	// writing after an error, "" if it shows nothing: CheckWritable knows more.
	Failed string
}

// At returns the mount at path, the topmost if there are several, and false
// if path is no mount point or does not exist.
func (m *Mounter) At(path string) (Point, bool, error) {
	real, err := realPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Point{}, false, nil
	}
	if err != nil {
		return Point{}, false, fmt.Errorf("mount at %s: %w", path, err)
	}
	// Not SingleEntryFilter, which ends at the first: that is the lowest of several.
	infos, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) { return info.Mountpoint != real, false })
	if err != nil {
		return Point{}, false, fmt.Errorf("read mounts: %w", err)
	}
	if len(infos) == 0 {
		return Point{}, false, nil
	}
	info := infos[len(infos)-1]
	return pointOf(path, info), true, nil
}

// pointOf reads an entry of mountinfo. It has the options of the mount and those
// of the filesystem beneath: "ro" that was asked for is in the mount's.
func pointOf(path string, info *mountinfo.Info) Point {
	p := Point{
		Path:     path,
		Major:    uint32(info.Major),
		Minor:    uint32(info.Minor),
		Root:     info.Root,
		Type:     info.FSType,
		ReadOnly: slices.Contains(slices.Collect(splitOptions(info.Options)), "ro"),
	}
	for option := range splitOptions(info.VFSOptions) {
		if slices.Contains(failedOptions, option) && (option != "ro" || !p.ReadOnly) {
			p.Failed = option
		}
	}
	return p
}

// failedOptions show a filesystem that was shut off (Linux, fs/ext4/super.c:
// ext4_handle_error, _ext4_show_options).
var failedOptions = []string{"ro", "emergency_ro", "shutdown"}

// CheckWritable makes sure that what is mounted can be written to: it is no
// read-only mount, and the kernel has not shut its filesystem off after an error.
// Some kernels show that in the filesystem's options (ext4 as "ro", since Linux
// 6.15 as "emergency_ro") and many do not (xfs; ext4 of Linux 6.12 and of the
// stable kernels that took its change, d3476f3dad4a), so it is tried: a file
// without a name starts a transaction, is seen by nobody, and leaves the
// folder's times as they are.
func (m *Mounter) CheckWritable(p Point) error {
	if p.ReadOnly {
		return fmt.Errorf("%s is mounted read-only, and read-write access is wanted: %w", p.Path, ErrNotWritable)
	}
	fd, err := unix.Open(p.Path, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EIO), errors.Is(err, unix.EUCLEAN):
		return fmt.Errorf("%s (%w): %w: the kernel has shut it off after an error; it is checked at its next mount, for which all Pods of the volume on this node have to end first",
			p.Path, err, ErrNotWritable)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil // full, or not to be tried: its root is immutable (chattr(1)), or labelled against it
	}
	return fmt.Errorf("try to write at %s: %w", p.Path, err)
}

// OtherMount finds a path, other than those excepted, at which the filesystem on
// a device is mounted or the device's own node is bound.
func (m *Mounter) OtherMount(major, minor uint32, except ...string) (path string, found bool, err error) {
	known := map[string]bool{}
	for _, path := range except {
		real, err := realPath(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("mount at %s: %w", path, err)
		}
		known[real] = true
	}
	infos, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) { return known[info.Mountpoint], false })
	if err != nil {
		return "", false, fmt.Errorf("read mounts: %w", err)
	}
	for _, info := range infos {
		shows, err := showsDevice(info, major, minor)
		if shows || err != nil {
			return info.Mountpoint, shows, err
		}
	}
	return "", false, nil
}

// showsDevice says whether a mount is the filesystem on a device, or the
// device's node: a file, bound from a filesystem of the kind that /dev is.
func showsDevice(info *mountinfo.Info, major, minor uint32) (bool, error) {
	if uint32(info.Major) == major && uint32(info.Minor) == minor {
		return true, nil
	}
	if info.Root == "/" || info.FSType != "devtmpfs" && info.FSType != "tmpfs" {
		return false, nil
	}
	nodeMajor, nodeMinor, isNode, err := NodeNumber(info.Mountpoint)
	return isNode && nodeMajor == major && nodeMinor == minor, err
}

// realPath resolves links in the folders above path, and not path itself:
// looking at the path of a dead mount can hang or fail.
func realPath(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// Bind shows source at target as well. A target that is absent is made: a
// folder for a folder, an empty file for a device node.
func (m *Mounter) Bind(source, target string, readOnly bool) error {
	if err := makeTarget(source, target); err != nil {
		return fmt.Errorf("make target %s: %w", target, err)
	}
	err := m.bind(source, target, readOnly)
	if errors.Is(err, unix.ENOSYS) {
		options := []string{"bind"}
		if readOnly {
			options = append(options, "ro")
		}
		err = m.mounter.Mount(source, target, "", options)
	}
	if err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

// bindAtOnce binds in one step: mount(2) binds writable first and makes the
// mount read-only in a second call, and who dies between the two leaves a
// mount that contradicts the next try. Other options of the source's mount
// (noatime, nosuid, ...) come along. ENOSYS before Linux 5.12
// (mount_setattr(2)).
func bindAtOnce(source, target string, readOnly bool) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(fd)
	if readOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("mount_setattr: %w", err)
		}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

func makeTarget(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(target, dirMode)
	}
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// Unmount unmounts path, as often as something is mounted there, and removes
// the empty folder or file that is left; a folder that is not empty is no
// mount point of ours and an error. A path that is gone is fine.
func (m *Mounter) Unmount(path string) error {
	for {
		_, mounted, err := m.At(path)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		if err := m.mounter.Unmount(path); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// NodeNumber returns the number of the device whose node is at path; ok is
// false if there is something else or nothing.
func NodeNumber(path string) (major, minor uint32, ok bool, err error) {
	var stat unix.Stat_t
	err = unix.Stat(path, &stat)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("stat %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, false, nil
	}
	return unix.Major(stat.Rdev), unix.Minor(stat.Rdev), true, nil
}
