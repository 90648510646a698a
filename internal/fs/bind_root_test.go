//go:build root

package fs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// privateMounts gives the test's thread a mount namespace of its own, which
// ends with it.
func privateMounts(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread dies with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatalf("a mount namespace (these tests need root): %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// TestBind: both ways to bind give the same mounts, on a kernel that can do it
// at once and on one that cannot (before Linux 5.12).
func TestBind(t *testing.T) {
	ways := map[string]func(source, target string, readOnly bool) error{
		"at once":      bindAtOnce,
		"in two steps": func(string, string, bool) error { return unix.ENOSYS },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			privateMounts(t)
			m := NewMounter()
			m.bind = way
			dir := t.TempDir()
			source := filepath.Join(dir, "source")
			if err := os.Mkdir(source, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", source, "tmpfs", unix.MS_NOATIME|unix.MS_NOSUID, ""); err != nil {
				t.Fatal(err)
			}
			for path, readOnly := range map[string]bool{"read-only": true, "writable": false} {
				target := filepath.Join(dir, "pods", path)
				if err := m.Bind(source, target, readOnly); err != nil {
					t.Fatal(err)
				}
				var stat unix.Statfs_t
				if err := unix.Statfs(target, &stat); err != nil {
					t.Fatal(err)
				}
				if stat.Flags&unix.ST_NOATIME == 0 || stat.Flags&unix.ST_NOSUID == 0 {
					t.Errorf("%s: the source's options must come along, flags are %#x", path, stat.Flags)
				}
				point, mounted, err := m.At(target)
				if err != nil || !mounted || point.ReadOnly != readOnly || point.Type != "tmpfs" {
					t.Errorf("%s: got %+v, %t, %v", path, point, mounted, err)
				}
				if err := os.WriteFile(filepath.Join(target, path), nil, 0o600); (err == nil) == readOnly {
					t.Errorf("%s: writing gives %v", path, err)
				}
				if err := m.Unmount(target); err != nil {
					t.Error(err)
				}
			}
			if err := unix.Unmount(source, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOtherMount: where else a filesystem is mounted, or a disk's node is shown.
func TestOtherMount(t *testing.T) {
	privateMounts(t)
	m := NewMounter()
	dir := t.TempDir()
	mount := func(name string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
		return path
	}
	bind := func(source, target string) string {
		t.Helper()
		target = filepath.Join(dir, target)
		if err := m.Bind(source, target, false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
		return target
	}
	node := func(path string, minor uint32) string {
		t.Helper()
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, minor))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stage, dev := mount("stage"), mount("dev")
	staged, _, err := m.At(stage)
	if err != nil {
		t.Fatal(err)
	}
	disk := node(filepath.Join(dev, "loop201"), 201)
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	check := func(why string, major, minor uint32, want string, except ...string) {
		t.Helper()
		path, found, err := m.OtherMount(major, minor, except...)
		if err != nil || path != want || found != (want != "") {
			t.Errorf("%s: got %q, %t, %v; want %q", why, path, found, err, want)
		}
	}
	check("staged alone", staged.Major, staged.Minor, "", stage, filepath.Join(dir, "pod1"))
	check("staged alone, the path given through a link", staged.Major, staged.Minor, "", filepath.Join(dir, "link/stage"))
	check("a path that is not there", staged.Major, staged.Minor, stage, filepath.Join(dir, "no/such/path"))
	pod1 := bind(stage, "pod1")
	check("published once, at the same path", staged.Major, staged.Minor, "", stage, pod1)
	check("published once, at another path", staged.Major, staged.Minor, pod1, stage, filepath.Join(dir, "pod2"))
	check("a disk that is shown nowhere", 7, 201, "", filepath.Join(dir, "pod3"))
	bind(node(filepath.Join(dev, "loop202"), 202), "pod4")
	check("another disk is shown", 7, 201, "")
	pod3 := bind(disk, "pod3")
	check("its node is bound, at the same path", 7, 201, "", pod3)
	check("its node is bound, at another path", 7, 201, pod3, filepath.Join(dir, "pod5"))
}
