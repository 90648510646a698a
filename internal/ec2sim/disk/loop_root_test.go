//go:build linux && root

package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// These tests need root and loop devices: go test -tags root.

// machine is Files with the dev folders of two instances; at the end no loop
// device of its files may be left.
func machine(t *testing.T) (f *Files, one, two string) {
	t.Helper()
	f = newFiles(t)
	one, two = t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		left, err := os.ReadDir(f.path("volumes"))
		must(t, err)
		for _, e := range left {
			loops, err := f.loopsOn(f.path("volumes", e.Name()))
			must(t, err)
			for _, n := range loops {
				above, err := f.loopsAbove(n)
				must(t, err)
				for _, m := range above {
					must(t, f.clear(m))
				}
				must(t, f.clear(n))
			}
		}
	})
	return f, one, two
}

// device is the loop device that a dev folder shows for a volume.
func device(t *testing.T, devDir, volumeID string) string {
	t.Helper()
	target, err := filepath.EvalSymlinks(linkPath(devDir, volumeID))
	must(t, err)
	return target
}

func loopNumber(t *testing.T, dev string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dev), "loop"))
	must(t, err)
	return n
}

func detached(t *testing.T, f *Files, id, devDir string, force bool) bool {
	t.Helper()
	gone, err := f.Detach(id, devDir, force)
	must(t, err)
	return gone
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// TestDiskOverLoop: what is written through the device is in the volume, in
// its snapshot and in what is restored from that; the device grows in place.
func TestDiskOverLoop(t *testing.T) {
	f, one, two := machine(t)
	must(t, f.CreateVolume("vol-0a", "", 64*mib))
	must(t, f.Attach("vol-0a", one))
	if got := filepath.Base(linkPath(one, "vol-0a")); got != "nvme-Amazon_Elastic_Block_Store_vol0a" {
		t.Errorf("link %s, want the one that udev makes on Nitro", got)
	}
	dev := device(t, one, "vol-0a")
	write(t, dev, 5*mib, "before")
	must(t, f.CreateSnapshots(map[string]string{"snap-0a": "vol-0a"}))
	write(t, dev, 5*mib, "after ")
	must(t, f.CreateVolume("vol-0b", "snap-0a", 64*mib))
	must(t, f.Attach("vol-0b", two))
	if got := read(t, device(t, two, "vol-0b"), 5*mib, 6); got != "before" {
		t.Errorf("restored %q", got)
	}
	if got := read(t, dev, 5*mib, 6); got != "after " {
		t.Errorf("the volume itself holds %q", got)
	}
	must(t, f.Grow("vol-0a", 128*mib))
	write(t, dev, 127*mib, "behind")
	for id, dir := range map[string]string{"vol-0a": one, "vol-0b": two} {
		if !detached(t, f, id, dir, false) {
			t.Errorf("%s is not detached", id)
		}
		if _, err := os.Lstat(linkPath(dir, id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the link of %s is still there: %v", id, err)
		}
		if loops, err := f.loopsOn(f.volumePath(id)); err != nil || len(loops) > 0 {
			t.Errorf("loop devices %v on %s after the detach, %v", loops, id, err)
		}
	}
	if !detached(t, f, "vol-0a", one, false) {
		t.Error("a second detach is not done")
	}
}

// TestCopiesOverLoop: what was written through the devices of two volumes is in
// their snapshots, and in a copy, and what is written later is not.
func TestCopiesOverLoop(t *testing.T) {
	f, one, two := machine(t)
	snapshots := map[string]string{}
	for _, id := range []string{"vol-0a", "vol-0b"} {
		must(t, f.CreateVolume(id, "", 16*mib))
		must(t, f.Attach(id, one))
		write(t, device(t, one, id), mib, "before "+id)
		snapshots["snap-of-"+id] = id
	}
	must(t, f.CreateSnapshots(snapshots))
	must(t, f.CopyVolume("vol-0a", "vol-0c", 32*mib))
	for _, id := range []string{"vol-0a", "vol-0b"} {
		write(t, device(t, one, id), mib, "later, "+id)
		if got := read(t, f.snapshotPath("snap-of-"+id), mib, 13); got != "before "+id {
			t.Errorf("the snapshot of %s holds %q", id, got)
		}
	}
	must(t, f.Attach("vol-0c", two))
	dev := device(t, two, "vol-0c")
	if got := read(t, dev, mib, 13); got != "before vol-0a" {
		t.Errorf("the copy holds %q", got)
	}
	write(t, dev, 31*mib, "behind")
	if got := read(t, device(t, one, "vol-0a"), mib, 13); got != "later, vol-0a" {
		t.Errorf("the source holds %q", got)
	}
}

// TestAttachTwiceAndRepair: a repeat changes nothing, a lost link or node
// comes back on the same device.
func TestAttachTwiceAndRepair(t *testing.T) {
	f, one, _ := machine(t)
	must(t, f.CreateVolume("vol-0a", "", mib))
	must(t, f.Attach("vol-0a", one))
	dev := device(t, one, "vol-0a")
	must(t, os.Remove(dev))
	must(t, f.Attach("vol-0a", one))
	if again := device(t, one, "vol-0a"); again != dev {
		t.Errorf("attached twice: %s and %s", dev, again)
	}
	if loops, err := f.loopsOn(f.volumePath("vol-0a")); err != nil || len(loops) != 1 {
		t.Errorf("loop devices %v, %v", loops, err)
	}
}

// TestBusyDetach: a mounted device and one held open stay, until they are let
// go; a forced detach takes the link away at once.
func TestBusyDetach(t *testing.T) {
	f, one, _ := machine(t)
	must(t, f.CreateVolume("vol-0a", "", 32*mib))
	must(t, f.Attach("vol-0a", one))
	dev, mnt := device(t, one, "vol-0a"), t.TempDir()
	run(t, "mkfs.ext4", "-q", dev)
	run(t, "mount", "-t", "ext4", "/dev/"+filepath.Base(dev), mnt)
	t.Cleanup(func() { _ = unix.Unmount(mnt, unix.MNT_DETACH) })
	if detached(t, f, "vol-0a", one, false) {
		t.Error("a mounted volume was detached")
	}
	must(t, os.WriteFile(filepath.Join(mnt, "still"), []byte("works"), 0o644))
	must(t, unix.Unmount(mnt, 0))
	if !detached(t, f, "vol-0a", one, false) {
		t.Error("not detached after umount")
	}

	must(t, f.Attach("vol-0a", one))
	user, err := os.Open(device(t, one, "vol-0a"))
	must(t, err)
	if detached(t, f, "vol-0a", one, false) {
		t.Error("a volume that is held open was detached")
	}
	must(t, user.Close())
	waitFor(t, "detached after close", func() bool { return detached(t, f, "vol-0a", one, false) })

	must(t, f.Attach("vol-0a", one))
	user, err = os.Open(device(t, one, "vol-0a"))
	must(t, err)
	if !detached(t, f, "vol-0a", one, true) {
		t.Error("force did not detach")
	}
	must(t, user.Close())
}

// TestDeleteBound: a file is not removed under a loop device, which nobody could
// tell from those of others afterwards. It goes when the device has been let go.
func TestDeleteBound(t *testing.T) {
	f, one, _ := machine(t)
	must(t, f.CreateVolume(halfVolume, "", mib))
	must(t, f.Attach(halfVolume, one))
	user, err := os.Open(device(t, one, halfVolume))
	must(t, err)
	defer user.Close()
	if !detached(t, f, halfVolume, one, true) {
		t.Fatal("force did not detach")
	}
	for range 2 {
		if err := f.DeleteVolume(halfVolume); !errors.Is(err, ErrBound) {
			t.Errorf("deleted while in use: %v, want ErrBound", err)
		}
	}
	if err := f.Reconcile(nil, nil); err != nil {
		t.Errorf("a start while a lost disk is in use: %v", err)
	}
	loops, err := f.loopsOn(f.volumePath(halfVolume))
	if err != nil || len(loops) != 1 {
		t.Fatalf("loop devices %v on the file, %v; it must be there as long as they are", loops, err)
	}
	before, err := f.status(loops[0])
	must(t, err)
	must(t, user.Close())
	waitFor(t, "deleted after close", func() bool { return f.DeleteVolume(halfVolume) == nil })
	if after, err := f.status(loops[0]); err != nil || after != nil && after.Device == before.Device && after.Inode == before.Inode {
		t.Errorf("loop device %d is left on the deleted file, %v", loops[0], err)
	}
}

// TestDeleteStack: kubelet's device on top of a raw block volume goes too; the
// one on another volume stays.
func TestDeleteStack(t *testing.T) {
	f, one, _ := machine(t)
	top := map[string]int{}
	for _, id := range []string{"vol-0a", "vol-0b"} {
		must(t, f.CreateVolume(id, "", mib))
		must(t, f.Attach(id, one))
		n, err := f.makeLoop(f.loopPath(loopNumber(t, device(t, one, id))))
		must(t, err)
		top[id] = n
	}
	bottom := loopNumber(t, device(t, one, "vol-0a"))
	must(t, os.Remove(linkPath(one, "vol-0a"))) // as if the instance had been terminated
	waitFor(t, "deleted", func() bool { return f.DeleteVolume("vol-0a") == nil })
	if above, err := f.loopsAbove(bottom); err != nil || slices.Contains(above, top["vol-0a"]) {
		t.Errorf("device %d is left on top of device %d, %v", top["vol-0a"], bottom, err)
	}
	above, err := f.loopsAbove(loopNumber(t, device(t, one, "vol-0b")))
	if err != nil || len(above) != 1 || above[0] != top["vol-0b"] {
		t.Errorf("devices %v are on top of the other volume, %v; want %d", above, err, top["vol-0b"])
	}
}

// TestReconcileLoops: missing devices come back, strays of ours go, and those
// of others are not touched.
func TestReconcileLoops(t *testing.T) {
	f, one, two := machine(t)
	other, dirOther, _ := machine(t)
	must(t, other.CreateVolume("vol-0a", "", mib)) // the same name elsewhere
	must(t, other.Attach("vol-0a", dirOther))
	for _, id := range []string{"vol-0a", "vol-0b", halfVolume} {
		must(t, f.CreateVolume(id, "", mib))
		must(t, f.Attach(id, one))
	}
	// as after a reboot of instance one's folder, and a crash in between
	must(t, f.clear(loopNumber(t, device(t, one, "vol-0a"))))
	must(t, os.Remove(linkPath(one, "vol-0b")))
	must(t, f.Reconcile(map[string][]string{"vol-0a": {one}, "vol-0b": {two}}, nil))

	for id, dir := range map[string]string{"vol-0a": one, "vol-0b": two} {
		loops, err := f.loopsOn(f.volumePath(id))
		must(t, err)
		if len(loops) != 1 || loops[0] != loopNumber(t, device(t, dir, id)) {
			t.Errorf("%s: devices %v, shown is %s", id, loops, device(t, dir, id))
		}
	}
	if _, err := os.Stat(f.volumePath(halfVolume)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a volume without record is still there: %v", err)
	}
	loops, err := other.loopsOn(other.volumePath("vol-0a"))
	if err != nil || len(loops) != 1 {
		t.Errorf("another's devices are %v, %v", loops, err)
	}
}

// TestMultiAttachLoops: each attachment has a device of its own.
func TestMultiAttachLoops(t *testing.T) {
	f, one, two := machine(t)
	must(t, f.CreateVolume("vol-0a", "", mib))
	must(t, f.Attach("vol-0a", one))
	must(t, f.Attach("vol-0a", two))
	if filepath.Base(device(t, one, "vol-0a")) == filepath.Base(device(t, two, "vol-0a")) {
		t.Error("two instances share a device")
	}
	must(t, f.Grow("vol-0a", 2*mib))
	for _, dir := range []string{one, two} {
		if got := read(t, device(t, dir, "vol-0a"), 2*mib-1, 1); got != "\x00" {
			t.Errorf("the last byte is %q", got)
		}
	}
	if !detached(t, f, "vol-0a", one, false) {
		t.Error("not detached from one")
	}
	write(t, device(t, two, "vol-0a"), 0, "still here")
}

// TestManyDevices: volumes get devices beyond the eight that a machine has at first.
func TestManyDevices(t *testing.T) {
	f, one, _ := machine(t)
	seen := map[string]bool{}
	for n := range 20 {
		id := "vol-" + strconv.Itoa(n)
		must(t, f.CreateVolume(id, "", mib))
		must(t, f.Attach(id, one))
		seen[device(t, one, id)] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d devices for 20 volumes", len(seen))
	}
}
