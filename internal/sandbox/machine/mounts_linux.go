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

// letGo cuts this mount namespace off from the machine's and unmounts here what
// the machine has and this one does not need: a mount that is kept here could not
// be taken off the machine's disk.
func letGo(keep, spare []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	points, err := mountPoints(f)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range superfluous(points, keep, spare) {
		err := unix.Unmount(m, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("let go of mount %s: %w", m, err)
		}
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
