package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
)

// within says whether path is dir or lies below it. Both are clean and absolute.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// superfluous picks the mount points to let go, the deepest first: all but the
// root, those that carry a path which must stay visible, and those in a folder of
// the kernel's (spare).
func superfluous(mountPoints, keep, spare []string) []string {
	var out []string
	for _, m := range slices.Backward(mountPoints) {
		carries := slices.ContainsFunc(keep, func(k string) bool { return within(k, m) })
		spared := slices.ContainsFunc(spare, func(s string) bool { return within(m, s) })
		if m != "/" && !carries && !spared {
			out = append(out, m)
		}
	}
	return out
}

// mountPoints reads the targets of a mountinfo table in the order of mounting.
func mountPoints(mountinfo io.Reader) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 4 {
			out = append(out, unescape(f[4]))
		}
	}
	return out, lines.Err()
}

// unescape undoes the octal escapes of mountinfo, such as \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// cutOff makes mounts and unmounts in this namespace stay in it.
func cutOff() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}

// letGo unmounts here what the machine has mounted and this one does not need: a
// mount that is kept here could not be taken off the machine's disk. It returns
// the mount points that are left.
func letGo(keep, spare []string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	points, err := mountPoints(f)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	gone := superfluous(points, keep, spare)
	for _, m := range gone {
		err := unix.Unmount(m, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("let go of mount %s: %w", m, err)
		}
	}
	return slices.DeleteFunc(points, func(p string) bool { return slices.Contains(gone, p) }), nil
}

// folder is a folder that can be shown somewhere, whatever has happened meanwhile
// to the mounts that it was in (open_tree(2)).
type folder struct {
	path string
	tree *os.File
}

func hold(path string) (folder, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return folder{}, fmt.Errorf("hold folder %s: %w", path, err)
	}
	return folder{path: path, tree: os.NewFile(uintptr(fd), path)}, nil
}

// show mounts the held folder at a place, once.
func (f folder) show(at string) error {
	defer f.tree.Close()
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fmt.Errorf("show folder %s: %w", f.path, err)
	}
	if err := unix.MoveMount(int(f.tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show folder %s at %s: %w", f.path, at, err)
	}
	return nil
}

// closeRoot makes what is left of the machine's file system read-only here, except
// for the state folder: kubelet and containerd make folders below /usr and /opt,
// and Pods wherever a hostPath says, and all of it would stay on the machine. /tmp
// becomes a folder of this machine's own. Mounts in the kernel's folders stay as
// they are.
func closeRoot(spec Spec, kernel []string) error {
	keep := append([]string{spec.State}, spec.Keep...)
	var held []folder
	for i, path := range keep {
		f, err := hold(path)
		if err != nil {
			return err
		}
		held = append(held, f)
		if i == 0 {
			continue // the state folder
		}
		if err := readOnly(int(f.tree.Fd()), ""); err != nil {
			return err
		}
	}
	left, err := letGo(keep, append(slices.Clone(System), kernel...))
	if err != nil {
		return err
	}
	for _, m := range left {
		if slices.ContainsFunc(kernel, func(k string) bool { return within(m, k) }) {
			continue
		}
		if err := readOnly(unix.AT_FDCWD, m); err != nil {
			return err
		}
	}
	if err := mount("tmp", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	for _, f := range held {
		if err := f.show(f.path); err != nil {
			return err
		}
	}
	return nil
}

// readOnly sets that attribute of the mount at a path, or of a held folder.
func readOnly(fd int, path string) error {
	flags := uint(0)
	if path == "" {
		flags = unix.AT_EMPTY_PATH
	}
	if err := unix.MountSetattr(fd, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %q read-only: %w", path, err)
	}
	return nil
}

// mount mounts a filesystem on a folder, which it makes if it can.
func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}

// bind shows a folder at another place as well.
func bind(from, to string) error {
	if err := os.MkdirAll(from, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", from, err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", from, to, err)
	}
	return nil
}

// kernelValues are the settings that kubelet wants, for the whole machine, and
// writes if it finds others (pkg/kubelet/cm, setupKernelTunables). The node shows
// it these, so that it leaves the machine's alone.
var kernelValues = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// maskKernelValues binds a file over each setting, in this mount namespace only.
func maskKernelValues() error {
	dir := "/run/holdfast-sysctl"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mask kernel settings: %w", err)
	}
	for key, value := range kernelValues {
		target := filepath.Join("/proc/sys", key)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without it
		}
		file := filepath.Join(dir, strings.ReplaceAll(key, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("mask kernel setting %s: %w", key, err)
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mask kernel setting %s: %w", key, err)
		}
	}
	return nil
}

// mountCgroups shows the hierarchies from this cgroup namespace.
func mountCgroups(l cgroup.Layout) error {
	const base = "/sys/fs/cgroup"
	if !l.Pure2() {
		if err := mount("cgroup", base, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	for _, m := range l.NodeMounts() {
		if err := mount(m.Type, m.Target, m.Type, 0, m.Data); err != nil {
			return err
		}
		for _, link := range m.Links {
			if err := os.Symlink(filepath.Base(m.Target), link); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("link cgroup controller: %w", err)
			}
		}
	}
	if l.Pure2() {
		return cgroup.PrepareV2Node(base)
	}
	return nil
}
