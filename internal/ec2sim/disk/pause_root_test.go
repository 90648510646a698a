//go:build linux && root

package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// writerDevices names the devices that this test binary writes to, when it is
// started as TestSnapshotUnderSteadyWrites' writer.
const writerDevices = "HOLDFAST_TEST_WRITER_DEVICES"

// TestMain writes without a rest where it is told to: a rising number to the
// first device, then to the second, over and over.
func TestMain(m *testing.M) {
	devices := strings.Fields(os.Getenv(writerDevices))
	if len(devices) == 0 {
		os.Exit(m.Run())
	}
	var files []*os.File
	for _, d := range devices {
		file, err := os.OpenFile(d, os.O_WRONLY|unix.O_SYNC, 0)
		if err != nil {
			panic(err)
		}
		files = append(files, file)
	}
	for n := uint64(1); ; n++ {
		for _, file := range files {
			if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, n), 0); err != nil {
				panic(err)
			}
		}
	}
}

// group makes a cgroup v2 folder for the length of a test.
func group(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "holdfast-test-")
		must(t, err)
		t.Cleanup(func() {
			waitFor(t, "cgroup "+dir+" removed", func() bool { return os.Remove(dir) == nil })
		})
		return dir
	}
	t.Fatal("cgroup v2 is mounted neither at /sys/fs/cgroup nor at /sys/fs/cgroup/unified")
	return ""
}

func number(t *testing.T, path string) uint64 {
	t.Helper()
	return binary.LittleEndian.Uint64([]byte(read(t, path, 0, 8)))
}

// TestSnapshotUnderSteadyWrites: volumes that are written to without a rest are
// copied together at one instant, and the writing goes on.
func TestSnapshotUnderSteadyWrites(t *testing.T) {
	f, one, _ := machine(t)
	f.patience = time.Second
	var devices []string
	for _, id := range []string{"vol-0a", "vol-0b"} {
		must(t, f.CreateVolume(id, "", 64*mib))
		must(t, f.Attach(id, one))
		dev := device(t, one, id)
		write(t, dev, mib, strings.Repeat("x", 32*mib)) // it takes a while to copy
		devices = append(devices, dev)
	}
	dir := group(t)
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), writerDevices+"="+strings.Join(devices, " "))
	writer.Stderr = os.Stderr
	must(t, writer.Start())
	t.Cleanup(func() { _ = writer.Process.Kill(); _ = writer.Wait() })
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(writer.Process.Pid)), 0))
	second := f.volumePath("vol-0b")
	waitFor(t, "the writer writes", func() bool { return number(t, second) > 100 })

	snapshots := map[string]string{"snap-0a": "vol-0a", "snap-0b": "vol-0b"}
	if err := f.CreateSnapshots(snapshots); !errors.Is(err, errRestless) {
		t.Fatalf("without a pause: %v, want that the volumes never rest", err)
	}
	must(t, f.Pause([]string{dir, filepath.Join(dir, "a-node-that-is-off")}))
	last := uint64(0)
	for range 3 {
		must(t, f.CreateSnapshots(snapshots))
		a, b := number(t, f.snapshotPath("snap-0a")), number(t, f.snapshotPath("snap-0b"))
		if b > a || a > b+1 || a <= last {
			t.Errorf("the copies hold %d and %d after %d: they are of different instants, or nothing was written since the last ones", a, b, last)
		}
		last = a
		waitFor(t, "the writer goes on", func() bool { return number(t, second) > last+100 })
	}
}

// TestPauseEndsWithItsMaker: what a process that was killed while it copied has
// left standing goes on when the next one starts.
func TestPauseEndsWithItsMaker(t *testing.T) {
	dir := group(t)
	must(t, os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0))
	must(t, newFiles(t).Pause([]string{dir}))
	if got, err := os.ReadFile(filepath.Join(dir, "cgroup.freeze")); err != nil || strings.TrimSpace(string(got)) != "0" {
		t.Errorf("cgroup.freeze is %q, %v; want 0", got, err)
	}
}
