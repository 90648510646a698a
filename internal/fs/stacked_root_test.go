//go:build root

package fs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What is seen at a path is what was mounted there last: a mount of a device that
// is gone may lie beneath, as a driver that mounts over it leaves it.
func TestAtIsTheTopmost(t *testing.T) {
	privateMounts(t)
	dir := t.TempDir()
	for _, fsType := range []string{"tmpfs", "ramfs"} {
		if err := unix.Mount(fsType, dir, fsType, 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMounter()
	point, mounted, err := m.At(dir)
	if err != nil || !mounted || point.Type != "ramfs" {
		t.Errorf("want the ramfs that lies above, got %+v, %t, %v", point, mounted, err)
	}
	if err := m.Unmount(dir); err != nil {
		t.Error(err)
	}
}
