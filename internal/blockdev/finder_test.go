package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// machine is a folder that looks like /sys and /dev of an instance.
type machine struct {
	t     *testing.T
	dir   string
	nodes map[string][2]uint32 // device nodes by path
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), nodes: map[string][2]uint32{}}
	for _, dir := range []string{"dev/disk/by-id", "sys/class/block", "sys/dev/block"} {
		m.check(os.MkdirAll(filepath.Join(m.dir, dir), 0o755))
	}
	return m
}

func (m *machine) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) tree() Tree {
	return Tree{Sys: filepath.Join(m.dir, "sys"), Dev: filepath.Join(m.dir, "dev"), nodeNumber: m.number}
}

func (m *machine) number(path string) (major, minor uint32, block bool, err error) {
	if n, ok := m.nodes[path]; ok {
		return n[0], n[1], true, nil
	}
	return 0, 0, false, fmt.Errorf("stat %s: %w", path, fs.ErrNotExist)
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.dir, path)
	m.check(os.MkdirAll(filepath.Dir(path), 0o755))
	m.check(os.WriteFile(path, []byte(text+"\n"), 0o644))
}

// device adds a disk or partition: sysfs entry below parent, node in /dev.
func (m *machine) device(parent, name string, major, minor uint32, sectors int64) string {
	m.t.Helper()
	dir := filepath.Join("sys/devices", parent, name)
	m.write(dir+"/dev", fmt.Sprintf("%d:%d", major, minor))
	m.write(dir+"/size", fmt.Sprint(sectors))
	m.write(dir+"/ro", "0")
	m.check(os.Symlink(filepath.Join(m.dir, dir), filepath.Join(m.dir, "sys/class/block", name)))
	m.check(os.Symlink(filepath.Join(m.dir, dir), filepath.Join(m.dir, "sys/dev/block", fmt.Sprintf("%d:%d", major, minor))))
	node := filepath.Join(m.dir, "dev", name)
	m.check(os.WriteFile(node, nil, 0o600))
	m.nodes[node] = [2]uint32{major, minor}
	return dir
}

// nvme adds an NVMe disk of 1 GiB.
func (m *machine) nvme(name, serial string, minor uint32) {
	m.t.Helper()
	m.write(m.device("", name, 259, minor, 1<<21)+"/device/serial", serial+"   ")
}

// disk adds a disk with the given block driver.
func (m *machine) disk(name, driver string, minor uint32) {
	m.t.Helper()
	dir := filepath.Join(m.dir, m.device("", name, 202, minor, 1<<21), "device")
	m.check(os.MkdirAll(dir, 0o755))
	m.check(os.Symlink("/sys/bus/xen/drivers/"+driver, filepath.Join(dir, "driver")))
}

// loop adds a loop device; an empty file means that none is set.
func (m *machine) loop(name, file string, minor uint32) {
	m.t.Helper()
	dir := m.device("", name, 7, minor, 1<<21)
	if file != "" {
		m.write(dir+"/loop/backing_file", file)
	}
}

func (m *machine) link(volume, to string) {
	m.t.Helper()
	m.check(os.Symlink("../../"+to, filepath.Join(m.dir, "dev/disk/by-id", linkName(volume))))
}

const (
	volume  = "vol-0123456789abcdef0"
	another = "vol-0123456789abcdef1"
)

// findRows is the table of the package comment.
var findRows = map[string]struct {
	why      string
	identity Identity
	machine  func(m *machine)
	want     Want
	name     string // of the device that is found
	err      error
}{
	"link": {
		why:     "udev's link is followed",
		machine: func(m *machine) { m.nvme("nvme1n1", "vol0123456789abcdef0", 1); m.link(volume, "nvme1n1") },
		name:    "nvme1n1",
	},
	"no link": {
		why: "without udev the serial numbers of all disks are read",
		machine: func(m *machine) {
			m.nvme("nvme0n1", "vol0123456789abcdef1", 0)
			m.nvme("nvme2n1", "vol0123456789abcdef0", 2)
		},
		name: "nvme2n1",
	},
	"wrong link": {
		why: "a link to another volume's disk is refused, even if the right disk is there",
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef1", 1)
			m.nvme("nvme2n1", "vol0123456789abcdef0", 2)
			m.link(volume, "nvme1n1")
		},
		err: ErrWrongDevice,
	},
	"link to a disk without serial": {
		why:     "what carries no evidence is not proved",
		machine: func(m *machine) { m.device("", "sda", 8, 0, 1<<21); m.link(volume, "sda") },
		err:     ErrWrongDevice,
	},
	"link to nothing": {
		why:     "a dangling link is a disk that has gone",
		machine: func(m *machine) { m.link(volume, "nvme1n1") },
		err:     ErrNoDevice,
	},
	"nothing": {
		why:     "a disk that is not there is waited for",
		machine: func(m *machine) { m.nvme("nvme0n1", "AWS00000000000000001", 0) },
		err:     ErrNoDevice,
	},
	"two": {
		why: "two disks with one serial number prove nothing",
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
			m.nvme("nvme2n1", "vol0123456789abcdef0", 2)
		},
		err: ErrWrongDevice,
	},
	"multipath": {
		why: "the hidden path of a multipath disk has its serial too and is no disk",
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
			m.nvme("nvme1c0n1", "vol0123456789abcdef0", 9)
		},
		name: "nvme1n1",
	},
	"longer id": {
		why:     "a serial number that only begins alike is another volume",
		machine: func(m *machine) { m.nvme("nvme1n1", "vol0123456789abcdef01", 1) },
		err:     ErrNoDevice,
	},
	"node of another disk": {
		why: "a device node that a former disk left behind is refused",
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
			m.nodes[filepath.Join(m.dir, "dev/nvme1n1")] = [2]uint32{259, 7}
		},
		err: ErrWrongDevice,
	},
	"no node": {
		why: "a device node that is not made yet is waited for",
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
			delete(m.nodes, filepath.Join(m.dir, "dev/nvme1n1"))
		},
		err: ErrNoDevice,
	},
	"no size": {
		why: "a disk that shows no size yet is waited for",
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
			m.write("sys/devices/nvme1n1/size", "0")
		},
		err: ErrNoDevice,
	},
	"partition": {
		why:  "the in-tree driver's volumes may name a partition; the disk is proved",
		want: Want{Partition: 1},
		machine: func(m *machine) {
			m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
			m.device("nvme1n1", "nvme1n1p1", 259, 2, 2048)
		},
		name: "nvme1n1p1",
	},
	"no partition": {
		why:     "a missing partition is never replaced by the whole disk",
		want:    Want{Partition: 1},
		machine: func(m *machine) { m.nvme("nvme1n1", "vol0123456789abcdef0", 1) },
		err:     ErrNoDevice,
	},
	"xen": {
		why: "a Xen disk has the attachment's name", identity: Xen,
		want:    Want{AttachedAs: "/dev/xvdaa"},
		machine: func(m *machine) { m.disk("xvdaa", "vbd", 1) },
		name:    "xvdaa",
	},
	"xen partition": {
		why: "partitions of Xen disks have no p in their names", identity: Xen,
		want:    Want{AttachedAs: "/dev/xvdaa", Partition: 2},
		machine: func(m *machine) { m.disk("xvdaa", "vbd", 1); m.device("xvdaa", "xvdaa2", 202, 2, 2048) },
		name:    "xvdaa2",
	},
	"xen without name": {
		why: "without the attachment's name nothing proves a Xen disk", identity: Xen,
		machine: func(m *machine) { m.disk("xvdaa", "vbd", 1) },
		err:     ErrUnprovable,
	},
	"xen name of a path": {
		why: "a name that leads out of /dev is no device name", identity: Xen,
		want:    Want{AttachedAs: "/dev/disk/by-id/x"},
		machine: func(*machine) {},
		err:     ErrUnprovable,
	},
	"xen name on Nitro": {
		why: "a disk of that name with another driver was not attached by this name", identity: Xen,
		want:    Want{AttachedAs: "/dev/xvdaa"},
		machine: func(m *machine) { m.disk("xvdaa", "nvme", 1) },
		err:     ErrWrongDevice,
	},
	"loop": {
		why: "a loop device is known by its file", identity: LoopBackingFile,
		machine: func(m *machine) { m.loop("loop3", "/ec2/"+volume+".img", 3); m.link(volume, "loop3") },
		name:    "loop3",
	},
	"loop deleted": {
		why: "a file that was removed is no proof", identity: LoopBackingFile,
		machine: func(m *machine) { m.loop("loop3", "/ec2/"+volume+".img (deleted)", 3); m.link(volume, "loop3") },
		err:     ErrWrongDevice,
	},
	"loop of another volume": {
		why: "the wrong file behind the link is refused", identity: LoopBackingFile,
		machine: func(m *machine) { m.loop("loop3", "/ec2/"+another+".img", 3); m.link(volume, "loop3") },
		err:     ErrWrongDevice,
	},
	"loop without file": {
		why: "the link may be there before the file is set", identity: LoopBackingFile,
		machine: func(m *machine) { m.loop("loop3", "", 3); m.link(volume, "loop3") },
		err:     ErrNoDevice,
	},
	"loop without link": {
		why: "other nodes' loop devices are visible too: only the link says that it is ours", identity: LoopBackingFile,
		machine: func(m *machine) { m.loop("loop3", "/ec2/"+volume+".img", 3) },
		err:     ErrNoDevice,
	},
}

func TestFind(t *testing.T) {
	for name, tc := range findRows {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.machine(m)
			tc.want.Volume = volume
			got, err := NewFinder(Options{Identity: tc.identity, Tree: m.tree()}).Find(tc.want)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: want error %v, got %v", tc.why, tc.err, err)
			}
			if diff := cmp.Diff(tc.name, got.Name); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			if err != nil && !strings.Contains(err.Error(), volume) && tc.want.Partition == 0 {
				t.Errorf("the error must name the volume: %v", err)
			}
		})
	}
}

func TestFoundDevice(t *testing.T) {
	m := newMachine(t)
	m.nvme("nvme1n1", "vol0123456789abcdef0", 5)
	m.write("sys/devices/nvme1n1/ro", "1")
	got, err := NewFinder(Options{Tree: m.tree()}).Find(Want{Volume: volume})
	if err != nil {
		t.Fatal(err)
	}
	want := Device{Name: "nvme1n1", Path: filepath.Join(m.dir, "dev/nvme1n1"), Major: 259, Minor: 5, SizeBytes: 1 << 30, ReadOnly: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("device (-want +got)\n%s", diff)
	}
}

func TestOwner(t *testing.T) {
	m := newMachine(t)
	m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
	m.device("nvme1n1", "nvme1n1p1", 259, 2, 2048)
	m.write("sys/devices/nvme1n1/nvme1n1p1/partition", "1")
	m.nvme("nvme2n1", "AWS6AAE9B5BD2D0C", 3)
	m.device("", "loop0", 7, 0, 2048)
	f := NewFinder(Options{Tree: m.tree()})
	for name, tc := range map[string]struct {
		why          string
		major, minor uint32
		want         ebs.VolumeID
	}{
		"disk":           {"a disk's serial number is its volume", 259, 1, volume},
		"partition":      {"a partition belongs to its disk's volume", 259, 2, volume},
		"instance store": {"other disks have serial numbers of another form", 259, 3, ""},
		"no serial":      {"what carries no evidence is nobody's", 7, 0, ""},
	} {
		owner, known, err := f.Owner(tc.major, tc.minor)
		if err != nil || owner != tc.want || known != (tc.want != "") {
			t.Errorf("%s: %s: got %q, %t, %v", name, tc.why, owner, known, err)
		}
	}
	if _, _, err := f.Owner(259, 99); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is gone must be told from one that is nobody's, got %v", err)
	}
	if _, known, err := NewFinder(Options{Identity: Xen, Tree: m.tree()}).Owner(259, 1); known || err != nil {
		t.Errorf("nothing tells whose a Xen disk is: %t, %v", known, err)
	}
}

// TestWaitEnds covers the three ways in which waiting ends, on a fake clock.
func TestWaitEnds(t *testing.T) {
	start := func(m *machine, ctx context.Context) (*clocktesting.FakeClock, <-chan error) {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		f := NewFinder(Options{Tree: m.tree(), Clock: clk})
		result := make(chan error, 1)
		go func() {
			_, err := f.Wait(ctx, Want{Volume: volume})
			result <- err
		}()
		return clk, result
	}
	waiting := func(t *testing.T, clk *clocktesting.FakeClock) {
		for deadline := time.Now().Add(10 * time.Second); !clk.HasWaiters(); {
			if time.Now().After(deadline) {
				t.Fatal("nobody waits")
			}
		}
	}
	t.Run("found", func(t *testing.T) {
		m := newMachine(t)
		clk, result := start(m, t.Context())
		waiting(t, clk)
		m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
		clk.Step(pollInterval) // the tick waits for a look that is under way
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("patience", func(t *testing.T) {
		clk, result := start(newMachine(t), t.Context())
		waiting(t, clk)
		clk.Step(DefaultPatience)
		if err := <-result; !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "30s") {
			t.Errorf("want ErrNoDevice that tells how long was waited, got %v", err)
		}
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		clk, result := start(newMachine(t), ctx)
		waiting(t, clk)
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNoDevice) {
			t.Errorf("want the context's end and what was waited for, got %v", err)
		}
	})
	t.Run("wrong device", func(t *testing.T) {
		m := newMachine(t)
		m.nvme("nvme1n1", "vol0123456789abcdef1", 1)
		m.link(volume, "nvme1n1")
		_, result := start(m, t.Context())
		if err := <-result; !errors.Is(err, ErrWrongDevice) {
			t.Errorf("a wrong device must end the wait at once, got %v", err)
		}
	})
}

func TestWaitForSize(t *testing.T) {
	m := newMachine(t)
	m.nvme("nvme1n1", "vol0123456789abcdef0", 1)
	f := NewFinder(Options{Tree: m.tree(), Patience: time.Millisecond})
	d := Device{Major: 259, Minor: 1}
	if got, err := f.WaitForSize(t.Context(), d, 1<<30); err != nil || got.SizeBytes != 1<<30 {
		t.Errorf("the size is there: got %+v, %v", got, err)
	}
	if _, err := f.WaitForSize(t.Context(), d, 1<<30+1); !errors.Is(err, ErrTooSmall) {
		t.Errorf("want ErrTooSmall, got %v", err)
	}

	m.device("nvme1n1", "nvme1n1p1", 259, 2, 1<<20)
	m.write("sys/devices/nvme1n1/nvme1n1p1/partition", "1")
	part := Device{Major: 259, Minor: 2}
	if got, err := f.WaitForSize(t.Context(), part, 1<<30); err != nil || got.Name != "nvme1n1p1" {
		t.Errorf("a partition never has its volume's size, it is the disk that must have it: got %+v, %v", got, err)
	}
	if _, err := f.WaitForSize(t.Context(), part, 1<<30+1); !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), "dev/nvme1n1 ") {
		t.Errorf("the disk of the partition is too small: got %v", err)
	}
}

func TestParseIdentity(t *testing.T) {
	for _, id := range []Identity{NVMe, Xen, LoopBackingFile} {
		if got, err := ParseIdentity(string(id)); got != id || err != nil {
			t.Errorf("%s: got %q, %v", id, got, err)
		}
	}
	if _, err := ParseIdentity("NVMe"); err == nil || !strings.Contains(err.Error(), "loop-backing-file") {
		t.Errorf("an unknown identity must be answered with the known ones, got %v", err)
	}
}
