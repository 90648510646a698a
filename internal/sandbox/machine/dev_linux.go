package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// loopNodes is how many loop devices a node sees. They are numbered for the whole
// machine: all sandboxes, their disks, and kubelet's loop on each raw block
// volume share them.
const loopNodes = 256

// deviceNode is one character or block device of a node's /dev.
type deviceNode struct {
	name         string
	kind         uint32
	major, minor uint32
	mode         uint32
}

// deviceNodes are the devices that programs expect (devices.txt of the kernel).
func deviceNodes() []deviceNode {
	out := []deviceNode{
		{"null", unix.S_IFCHR, 1, 3, 0o666},
		{"zero", unix.S_IFCHR, 1, 5, 0o666},
		{"full", unix.S_IFCHR, 1, 7, 0o666},
		{"random", unix.S_IFCHR, 1, 8, 0o666},
		{"urandom", unix.S_IFCHR, 1, 9, 0o666},
		{"kmsg", unix.S_IFCHR, 1, 11, 0o644},
		{"tty", unix.S_IFCHR, 5, 0, 0o666},
		{"console", unix.S_IFCHR, 5, 1, 0o600},
		{"fuse", unix.S_IFCHR, 10, 229, 0o666},
		{"loop-control", unix.S_IFCHR, 10, 237, 0o660},
	}
	for i := range uint32(loopNodes) {
		out = append(out, deviceNode{"loop" + strconv.Itoa(int(i)), unix.S_IFBLK, 7, i, 0o660})
	}
	return out
}

// prepareDev mounts and fills the folder that a node will have as /dev. It does
// nothing for one that is there: a node keeps its disks over a loss of power.
func prepareDev(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(dir, "null"), &st); err == nil && st.Type == unix.TMPFS_MAGIC {
		return nil
	}
	if err := mount("dev", dir, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for _, sub := range []string{"pts", "shm", "mqueue", "disk/by-id"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fmt.Errorf("fill /dev: %w", err)
		}
	}
	links := map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("fill /dev: %w", err)
		}
	}
	for _, d := range deviceNodes() {
		path := filepath.Join(dir, d.name)
		err := unix.Mknod(path, d.kind|d.mode, int(unix.Mkdev(d.major, d.minor)))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make device %s: %w", path, err)
		}
		if err := unix.Chmod(path, d.mode); err != nil { // whatever the umask was
			return fmt.Errorf("make device %s: %w", path, err)
		}
	}
	return nil
}

// mountDev puts the folder on /dev, with the filesystems that belong in it.
func mountDev(dir folder) error {
	if err := dir.show("/dev"); err != nil {
		return err
	}
	if err := mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return err
	}
	if err := mount("mqueue", "/dev/mqueue", "mqueue", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return err
	}
	return mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
}
