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
