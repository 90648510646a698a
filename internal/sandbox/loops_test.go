//go:build sandbox

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/loopdev"
)

// boundLoop is a loop device and the numbers of the file that it was bound to. By
// these it is known again when the file is deleted and the namespaces are gone in
// which it had a path: of that, the kernel then shows the last part at most.
type boundLoop struct {
	number        int
	device, inode uint64
}

// loopsBelow are the loop devices of a folder.
func loopsBelow(t *testing.T, dir string) []boundLoop {
	t.Helper()
	numbers, err := loopdev.Below(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []boundLoop
	for _, n := range numbers {
		info := loopStatus(t, n)
		if info == nil {
			t.Fatalf("loop device %d has been freed meanwhile", n)
		}
		out = append(out, boundLoop{n, info.Device, info.Inode})
	}
	return out
}

// isLeft says whether the device is still bound to that file.
func (l boundLoop) isLeft(t *testing.T) bool {
	t.Helper()
	info := loopStatus(t, l.number)
	return info != nil && info.Device == l.device && info.Inode == l.inode
}

// loopStatus is what the kernel says of a loop device, nil of one that is free.
func loopStatus(t *testing.T, number int) *unix.LoopInfo64 {
	t.Helper()
	dev, err := os.Open(fmt.Sprintf("/dev/loop%d", number))
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestLoopIsLeft: a loop device whose file has been deleted is seen, under a path
// that does not lead to its folder any more.
func TestLoopIsLeft(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	loops := loopsBelow(t, dir)
	if len(loops) != 1 || fmt.Sprintf("/dev/loop%d", loops[0].number) != device {
		_ = exec.Command("losetup", "-d", device).Run()
		t.Fatalf("loop devices %v, want %s", loops, device)
	}
	moved := filepath.Join(t.TempDir(), "elsewhere.img")
	if err := errors.Join(os.Rename(file, moved), os.Remove(moved)); err != nil {
		t.Error(err)
	}
	if !loops[0].isLeft(t) {
		t.Errorf("%s is not seen", device)
	}
	other := boundLoop{loops[0].number, loops[0].device, loops[0].inode + 1}
	if other.isLeft(t) {
		t.Errorf("%s is taken for a device on another file", device)
	}
	if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
		t.Errorf("free %s: %v: %s", device, err, out)
	}
	eventually(t, "the device is free", func() error {
		if loops[0].isLeft(t) {
			return errors.New("still bound")
		}
		return nil
	})
}
