//go:build linux

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const mib = 1 << 20

func newFiles(t *testing.T) *Files {
	t.Helper()
	f, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write puts bytes into a file at an offset.
func write(t *testing.T, path string, at int64, data string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = file.WriteAt([]byte(data), at)
	must(t, errors.Join(err, file.Sync(), file.Close()))
}

func read(t *testing.T, path string, at int64, n int) string {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	buf := make([]byte, n)
	_, err = file.ReadAt(buf, at)
	must(t, err)
	return string(buf)
}

// used is how many bytes a file takes on its disk.
func used(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

// TestSnapshotAndRestore: a snapshot is what the volume held, holes stay
// holes, and a restored volume may be larger.
func TestSnapshotAndRestore(t *testing.T) {
	f := newFiles(t)
	must(t, f.CreateVolume("vol-a", "", 4096*mib))
	write(t, f.volumePath("vol-a"), 0, "begin")
	write(t, f.volumePath("vol-a"), 2048*mib+100, "middle")
	must(t, f.CreateSnapshots(map[string]string{"snap-a": "vol-a"}))
	write(t, f.volumePath("vol-a"), 0, "later")
	must(t, f.CreateVolume("vol-b", "snap-a", 5000*mib))
	path := f.volumePath("vol-b")
	if got := read(t, path, 0, 5) + read(t, path, 2048*mib+100, 6); got != "beginmiddle" {
		t.Errorf("restored %q", got)
	}
	if got := read(t, path, 4999*mib, 4); got != "\x00\x00\x00\x00" {
		t.Errorf("behind the snapshot is %q, want zeros", got)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 5000*mib {
		t.Errorf("size %d, %v", info.Size(), err)
	}
	for _, p := range []string{f.volumePath("vol-a"), f.snapshotPath("snap-a"), path} {
		if n := used(t, p); n > mib {
			t.Errorf("%s takes %d bytes, yet it holds 11", p, n)
		}
	}
}

// TestSnapshotWaitsForRest: while something writes, a copy would show two
// points in time; it is made when the writing pauses, or not at all.
func TestSnapshotWaitsForRest(t *testing.T) {
	f := newFiles(t)
	must(t, f.CreateVolume("vol-a", "", 64*mib))
	write(t, f.volumePath("vol-a"), 0, strings.Repeat("x", 32*mib))
	f.patience = 500 * time.Millisecond
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		file, err := os.OpenFile(f.volumePath("vol-a"), os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		for n := int64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := file.WriteAt([]byte("y"), n%mib); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	err := f.CreateSnapshots(map[string]string{"snap-a": "vol-a"})
	close(stop)
	<-stopped
	if _, cloned := os.Stat(f.snapshotPath("snap-a")); err == nil && cloned == nil && !clones(t, f) {
		t.Error("a volume that is written to all the time was copied as if it rested")
	}
	if err != nil && !errors.Is(err, errRestless) {
		t.Error(err)
	}
	f.patience = 10 * time.Second
	must(t, f.CreateSnapshots(map[string]string{"snap-b": "vol-a"}))
	if !bytes.Equal(readAll(t, f.volumePath("vol-a")), readAll(t, f.snapshotPath("snap-b"))) {
		t.Error("the snapshot of a resting volume differs from it")
	}
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

// clones tells whether the filesystem copies by reference, at one instant.
func clones(t *testing.T, f *Files) bool {
	t.Helper()
	must(t, f.CreateVolume("vol-probe", "", mib))
	cloned, err := copyOnce(f.volumePath("vol-probe"), f.path("probe"))
	must(t, err)
	return cloned
}

func TestDeleteTwice(t *testing.T) {
	f := newFiles(t)
	must(t, f.CreateVolume("vol-a", "", mib))
	must(t, f.CreateSnapshots(map[string]string{"snap-a": "vol-a"}))
	for range 2 {
		must(t, f.DeleteVolume("vol-a"))
		must(t, f.DeleteSnapshot("snap-a"))
	}
	for _, p := range []string{f.volumePath("vol-a"), f.snapshotPath("snap-a")} {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
}

func TestCreateThatFailsLeavesNothing(t *testing.T) {
	f := newFiles(t)
	if err := f.CreateVolume("vol-a", "", 1<<62); err == nil {
		t.Error("a volume larger than any file was made")
	}
	if err := f.CreateVolume("vol-b", "snap-none", mib); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("from a snapshot without content: %v", err)
	}
	if err := f.CreateSnapshots(map[string]string{"snap-a": "vol-none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a volume without content: %v", err)
	}
	for _, kind := range []string{"volumes", "snapshots"} {
		left, err := filepath.Glob(f.path(kind, "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %v %v", left, err)
		}
	}
}

// Names as the simulator gives them, of a volume and a snapshot that a killed
// process has left without record.
const (
	halfVolume   = "vol-0123456789abcdef0"
	halfSnapshot = "snap-0123456789abcdef0"
)

// TestReconcileFiles: what no record knows goes if it is ours, what a record
// knows must be there.
func TestReconcileFiles(t *testing.T) {
	f := newFiles(t)
	must(t, f.CreateVolume("vol-a", "", mib))
	must(t, f.CreateVolume(halfVolume, "", mib))
	must(t, f.CreateSnapshots(map[string]string{"snap-a": "vol-a"}))
	must(t, f.CreateSnapshots(map[string]string{halfSnapshot: "vol-a"}))
	foreign := map[string]string{
		f.path("volumes", "debian.img"):          "somebody's machine",
		f.volumePath("vol-0123456789abcdef"):     "too few digits",
		f.volumePath("vol-0123456789abcdef01"):   "too many digits",
		f.volumePath("vol-0123456789ABCDEF0"):    "capital digits",
		f.volumePath("my-" + halfVolume):         "something before",
		f.path("volumes", halfVolume+".img.bak"): "something behind",
		f.path("volumes", halfVolume+"_img"):     "another ending",
		f.volumePath(halfSnapshot):               "a snapshot's name among volumes",
		f.snapshotPath(halfVolume):               "a volume's name among snapshots",
	}
	for path := range foreign {
		must(t, os.WriteFile(path, []byte("theirs"), 0o600))
	}
	must(t, f.Reconcile(map[string][]string{"vol-a": nil}, []string{"snap-a"}))
	for path, want := range map[string]bool{
		f.volumePath("vol-a"): true, f.volumePath(halfVolume): false, f.snapshotPath("snap-a"): true, f.snapshotPath(halfSnapshot): false,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	for path, why := range foreign {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s, not ours (%s): %v", path, why, err)
		}
	}
	if err := f.Reconcile(map[string][]string{"vol-lost": nil}, nil); err == nil || !strings.Contains(err.Error(), "vol-lost") {
		t.Errorf("a recorded volume without file: %v", err)
	}
	if _, err := os.Stat(f.volumePath("vol-a")); err != nil {
		t.Errorf("a state that cannot be right deleted files: %v", err)
	}
}

// TestVacant: any image makes a folder one in which nothing is begun.
func TestVacant(t *testing.T) {
	for _, row := range []struct {
		why, file string
		vacant    bool
	}{
		{"nothing is there", "", true},
		{"a volume of ours", "volumes/" + halfVolume + ".img", false},
		{"a snapshot of ours", "snapshots/" + halfSnapshot + ".img", false},
		{"somebody's machine", "volumes/debian.img", false},
		{"no image", "volumes/README", true},
		{"an image where none of ours would be", "debian.img", true},
	} {
		f := newFiles(t)
		if row.file != "" {
			must(t, os.WriteFile(f.path(row.file), nil, 0o600))
		}
		err := f.Vacant()
		if (err == nil) != row.vacant || err != nil && !strings.Contains(err.Error(), row.file) {
			t.Errorf("%s: %v, want vacant: %v", row.why, err, row.vacant)
		}
	}
}

// TestGrowKeepsContent: growing is done once, and never makes smaller.
func TestGrowKeepsContent(t *testing.T) {
	f := newFiles(t)
	must(t, f.CreateVolume("vol-a", "", mib))
	write(t, f.volumePath("vol-a"), 5, "data")
	for _, size := range []int64{3 * mib, 3 * mib, 2 * mib} {
		must(t, f.Grow("vol-a", size))
	}
	if info, err := os.Stat(f.volumePath("vol-a")); err != nil || info.Size() != 3*mib {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if got := read(t, f.volumePath("vol-a"), 5, 4); got != "data" {
		t.Errorf("content %q", got)
	}
	if err := f.Grow("vol-none", mib); err == nil {
		t.Error("a volume without content grew")
	}
}

// waitFor polls until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestCopyVolume: a copy is what its source held at that time, may be larger,
// and the two go their own ways afterwards.
func TestCopyVolume(t *testing.T) {
	f := newFiles(t)
	must(t, f.CreateVolume("vol-a", "", 64*mib))
	write(t, f.volumePath("vol-a"), 1000, "before")
	must(t, f.CopyVolume("vol-a", "vol-b", 128*mib))
	write(t, f.volumePath("vol-a"), 1000, "later!")
	write(t, f.volumePath("vol-b"), 2000, "mine")
	got := read(t, f.volumePath("vol-b"), 1000, 6) + read(t, f.volumePath("vol-b"), 127*mib, 1) + read(t, f.volumePath("vol-a"), 2000, 4)
	if want := "before\x00\x00\x00\x00\x00"; got != want {
		t.Errorf("copy, its end and the source hold %q, want %q", got, want)
	}
	if err := f.CopyVolume("vol-none", "vol-c", mib); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a source that is not there: %v", err)
	}
	if _, err := os.Stat(f.volumePath("vol-c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy that failed left a file: %v", err)
	}
}

// TestSnapshotsAtOneInstant: of two volumes that are written to in turn the
// second is never seen ahead of the first.
func TestSnapshotsAtOneInstant(t *testing.T) {
	f := newFiles(t)
	f.patience = time.Minute
	ids := []string{"vol-a", "vol-b"}
	for _, id := range ids {
		must(t, f.CreateVolume(id, "", 4*mib))
		write(t, f.volumePath(id), 0, strings.Repeat("0", 4*mib))
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- writeInTurn(f, ids, stop) }()
	for i := range 10 {
		a, b := fmt.Sprintf("snap-a%d", i), fmt.Sprintf("snap-b%d", i)
		must(t, f.CreateSnapshots(map[string]string{a: "vol-a", b: "vol-b"}))
		first, second := read(t, f.snapshotPath(a), 0, 8), read(t, f.snapshotPath(b), 0, 8)
		if second > first {
			t.Errorf("round %d: the first volume as of %s, the second as of %s", i, first, second)
		}
	}
	close(stop)
	must(t, <-stopped)
	err := f.CreateSnapshots(map[string]string{"snap-x": "vol-a", "snap-y": "vol-none"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a volume that is not there: %v", err)
	}
	if _, err := os.Stat(f.snapshotPath("snap-x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half of a failed set was left: %v", err)
	}
}

// writeInTurn counts up in all volumes, with pauses of many lengths so that
// copies end everywhere between writes.
func writeInTurn(f *Files, ids []string, stop <-chan struct{}) error {
	for n := 1; ; n++ {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Duration(12+n*7%30) * time.Millisecond):
		}
		for _, id := range ids {
			file, err := os.OpenFile(f.volumePath(id), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(file, "%08d", n)
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
		}
	}
}
