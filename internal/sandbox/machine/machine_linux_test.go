//go:build sandbox

// The tests in this file need root, and nothing else of the machine: this binary
// is also the first process of the machines that it makes, and what runs in them.
// So they run in a virtual machine with another kernel as well, see vm_test.go.

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/initd"
	"github.com/holdfast-dev/holdfast/internal/testvm/guest"
)

func TestMain(m *testing.M) {
	commands := map[string]func(string) error{"init": Init, "look": look, "serve": serve, "dial": dial, "top": holdTop}
	if len(os.Args) == 3 {
		if run, ok := commands[os.Args[1]]; ok {
			if err := run(os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	guest.Main(m)
}

// facts are what a process in a node sees.
type facts struct {
	Host     string
	Cgroups  []string // lines of /proc/self/cgroup, without their numbers
	Mounts   []string
	Devices  []string
	Address  string // of eth0
	Panic    string // kernel.panic
	Children string // error of making a cgroup with a limit, if any
	Writable []string
}

// look prints the facts.
func look(string) error {
	f := facts{}
	var err error
	if f.Host, err = os.Hostname(); err != nil {
		return err
	}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		if p := strings.SplitN(strings.TrimSpace(line), ":", 3); len(p) == 3 {
			f.Cgroups = append(f.Cgroups, p[1]+":"+p[2])
		}
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer mounts.Close()
	if f.Mounts, err = mountPoints(mounts); err != nil {
		return err
	}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, e := range entries {
		f.Devices = append(f.Devices, e.Name())
	}
	if i, err := net.InterfaceByName("eth0"); err == nil {
		if a, err := i.Addrs(); err == nil && len(a) > 0 {
			f.Address = a[0].String()
		}
	}
	if raw, err = os.ReadFile("/proc/sys/kernel/panic"); err != nil {
		return err
	}
	f.Panic = strings.TrimSpace(string(raw))
	if err := limitedCgroup(); err != nil {
		f.Children = err.Error()
	}
	for _, dir := range []string{"/", "/etc", "/usr", "/opt", "/root", "/var/tmp", "/tmp", "/run", "/var/lib", "/var/log"} {
		probe := filepath.Join(dir, fmt.Sprintf("holdfast-probe-%d", os.Getpid()))
		if err := os.WriteFile(probe, nil, 0o600); err == nil {
			f.Writable = append(f.Writable, dir)
			_ = os.Remove(probe)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// limitedCgroup does what kubelet does for a Pod: a group of its own with a limit
// on processes, and a process in it.
func limitedCgroup() error {
	layout, err := cgroup.Detect()
	if err != nil {
		return err
	}
	for _, h := range layout.Hierarchies {
		if h.Controllers != "pids" && !layout.Pure2() {
			continue
		}
		dir := filepath.Join(h.Mount, fmt.Sprintf("kubepods-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte("50"), 0); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	}
	return errors.New("no hierarchy limits processes")
}

func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		_ = c.Close()
	}
}

func dial(address string) error {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// holdTop starts top from the spec in a folder and lives on.
func holdTop(dir string) error {
	layout, err := cgroup.Detect()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ended, err := StartTop(context.Background(), TopOptions{
		Program: program, Spec: filepath.Join(dir, "top.json"), Log: filepath.Join(dir, "top.log"),
		Group: groupOf(dir) + "/top", Cgroups: layout,
	})
	if err != nil {
		return err
	}
	<-ended
	return nil
}

func groupOf(dir string) string {
	return "holdfast-sandbox-machine-" + strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-")
}

// rig is top with nodes that run this binary.
type rig struct {
	t       *testing.T
	dir     string
	program string
	group   string
	layout  cgroup.Layout
	parent  *exec.Cmd
}

func (r *rig) client(name string) initd.Client {
	return initd.Client{Socket: filepath.Join(r.dir, name+".sock")}
}

func (r *rig) file(name string) string { return filepath.Join(r.dir, name) }

// newRig starts top; what is left of it goes when the test ends.
func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: run it with sudo")
	}
	for _, d := range []string{"/var/lib", "/var/log"} { // a bare virtual machine lacks them
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &rig{t: t, dir: dir, program: program, group: groupOf(dir), layout: layout}
	t.Cleanup(r.clean)
	spec := Spec{
		Kind: Top, Name: "top", Socket: r.client("top").Socket, DieWithParent: true, State: r.dir, Keep: []string{filepath.Dir(r.program)},
		Addresses: []string{"10.200.0.1/24"}, Cgroups: layout,
	}
	if err := spec.Write(r.file("top.json")); err != nil {
		t.Fatal(err)
	}
	// Another process starts it, so that a test can see what happens when that ends.
	r.parent = exec.Command(program, "top", dir)
	r.parent.Stderr = os.Stderr
	if err := r.parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.parent.Process.Kill(); _ = r.parent.Wait() })
	r.await("top")
	return r
}

// with is the same rig for a subtest.
func (r *rig) with(t *testing.T) *rig {
	c := *r
	c.t = t
	return &c
}

func (r *rig) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := r.layout.Kill(ctx, r.group); err != nil {
		r.t.Error(err)
	}
	if err := r.layout.Remove(ctx, r.group); err != nil {
		r.t.Error(err)
	}
	for _, dir := range r.layout.Folders(r.group) {
		if _, err := os.Stat(dir); err == nil {
			r.t.Errorf("cgroup %s is left", dir)
		}
	}
}

// await waits until the init of a machine answers.
func (r *rig) await(name string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := r.client(name).PID(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(r.file(name + ".log"))
			r.t.Fatalf("%s: %v; its log: %s", name, err, log)
		}
	}
}

func (r *rig) spawn(name, address, link string) {
	r.t.Helper()
	spec := Spec{
		Kind: Node, Name: name, Socket: r.client(name).Socket, State: r.dir, Keep: []string{filepath.Dir(r.program)}, Addresses: []string{address},
		Routes: []Route{{To: "0.0.0.0/0", Via: "10.200.0.1"}}, Cgroups: r.layout,
		Binds:  []Bind{{From: r.file(name + "-lib"), To: "/var/lib"}, {From: r.file(name + "-log"), To: "/var/log"}},
		DevDir: r.file(name + "-dev"),
	}
	if err := spec.Write(r.file(name + ".json")); err != nil {
		r.t.Fatal(err)
	}
	req, err := SpawnRequest(name, Spawn{
		Program: r.program, Spec: r.file(name + ".json"), Log: r.file(name + ".log"), DevDir: spec.DevDir,
		Link: link, Group: r.group + "/" + name, Cgroups: r.layout,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client("top").Do(r.t.Context(), req); err != nil {
		r.t.Fatal(err)
	}
	r.await(name)
}

// run runs this binary in a machine.
func (r *rig) run(machine string, args ...string) (string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	exit, err := r.client(machine).Run(r.t.Context(), initd.Request{Argv: append([]string{r.program}, args...)}, null, write, write)
	_ = write.Close()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(read); err != nil {
		return "", err
	}
	if exit.Code != 0 {
		return "", fmt.Errorf("%q on %s ends with %+v: %s", args, machine, exit, out.String())
	}
	return out.String(), nil
}

func (r *rig) look(machine string) facts {
	r.t.Helper()
	out, err := r.run(machine, "look", "-")
	if err != nil {
		r.t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return f
}

func TestMachines(t *testing.T) {
	r := newRig(t)
	r.spawn("n1", "10.200.0.11/24", "link1")
	r.spawn("n2", "10.200.0.12/24", "link2")
	t.Run("view", func(t *testing.T) { testView(t, r.with(t)) })
	t.Run("network", func(t *testing.T) {
		for _, n := range []string{"n2", "top"} {
			if _, err := r.client(n).Do(t.Context(), initd.Request{Op: "start", Name: "server", Argv: []string{r.program, "serve", ":7000"}, Log: r.file("server.log")}); err != nil {
				t.Fatal(err)
			}
		}
		for from, to := range map[string]string{"n1": "10.200.0.12:7000", "n2": "10.200.0.1:7000", "top": "10.200.0.12:7000"} {
			var err error
			for range 50 { // the server may not listen yet
				if _, err = r.run(from, "dial", to); err == nil {
					break
				}
			}
			if err != nil {
				t.Errorf("from %s to %s: %v", from, to, err)
			}
		}
	})
	t.Run("power", func(t *testing.T) { testPowerLoss(t, r.with(t)) })
	t.Run("machine untouched", func(t *testing.T) {
		raw, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(r.dir)) {
			t.Errorf("the sandbox has mounted something in this namespace:\n%s", raw)
		}
		if _, err := net.InterfaceByName(Bridge); err == nil {
			t.Errorf("there is a %s in this network namespace", Bridge)
		}
	})
}

// TestParentDies: nothing of a sandbox that is not detached outlives who started it.
func TestParentDies(t *testing.T) {
	r := newRig(t)
	r.spawn("n1", "10.200.0.11/24", "link1")
	if err := r.parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := r.layout.Processes(r.group)
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("processes %v live on", pids)
		}
	}
}

func testView(t *testing.T, r *rig) {
	for name, address := range map[string]string{"n1": "10.200.0.11/24", "n2": "10.200.0.12/24"} {
		f := r.look(name)
		if f.Host != name || f.Address != address || f.Panic != "10" {
			t.Errorf("%s is named %q, has address %q, sees kernel.panic %q", name, f.Host, f.Address, f.Panic)
		}
		if f.Children != "" {
			t.Errorf("kubelet could not make a Pod's cgroup on %s: %s", name, f.Children)
		}
		if diff := cmp.Diff([]string{"/tmp", "/run", "/var/lib", "/var/log"}, f.Writable); diff != "" {
			t.Errorf("folders that %s can write to (-want +got)\n%s", name, diff)
		}
		// It is in the root of its cgroup namespace; with v2, in a leaf below.
		want := "/"
		if r.layout.Pure2() {
			want = "/node.scope"
		}
		for _, c := range f.Cgroups {
			if !strings.HasSuffix(c, ":"+want) {
				t.Errorf("%s is in cgroup %s, want %s", name, c, want)
			}
		}
		for _, m := range []string{"/var/lib", "/var/log", "/run", "/proc", "/sys", "/sys/fs/cgroup", "/dev", "/dev/pts", "/dev/shm"} {
			if !slices.Contains(f.Mounts, m) {
				t.Errorf("%s has no own %s: %q", name, m, f.Mounts)
			}
		}
		for _, d := range []string{"null", "loop0", "loop255", "disk", "ptmx"} {
			if !slices.Contains(f.Devices, d) {
				t.Errorf("%s has no /dev/%s: %q", name, d, f.Devices)
			}
		}
		if slices.ContainsFunc(f.Mounts, func(m string) bool { return strings.HasPrefix(m, r.dir+"/") && !within(r.program, m) }) {
			t.Errorf("%s sees a mount of top's: %q", name, f.Mounts)
		}
	}
}

// testPowerLoss: a node loses its processes, and keeps its devices and its disk.
func testPowerLoss(t *testing.T, r *rig) {
	link := filepath.Join("/proc", fmt.Sprint(r.pid("top")), "root", r.file("n1-dev"), "disk/by-id/volume")
	if err := os.Symlink("../../loop7", link); err != nil {
		t.Fatal(err)
	}
	before := r.pid("n1")
	if _, err := r.client("top").Do(t.Context(), initd.Request{Op: "stop", Name: "n1"}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(before, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d of n1: %v, want none", before, err)
	}
	if pids, err := r.layout.Processes(r.group + "/n1"); err != nil || len(pids) > 0 {
		t.Errorf("n1 is off, and has processes %v, %v", pids, err)
	}
	if err := r.layout.Remove(t.Context(), r.group+"/n1"); err != nil {
		t.Error(err)
	}
	r.spawn("n1", "10.200.0.11/24", "link1")
	to, err := os.Readlink(filepath.Join("/proc", fmt.Sprint(r.pid("n1")), "root/dev/disk/by-id/volume"))
	if diff := cmp.Diff("../../loop7", to); err != nil || diff != "" {
		t.Errorf("the node's volume after a loss of power: %v (-want +got)\n%s", err, diff)
	}
	if f := r.look("n1"); f.Address != "10.200.0.11/24" || f.Children != "" {
		t.Errorf("n1 after a loss of power: %+v", f)
	}
}

func (r *rig) pid(name string) int {
	r.t.Helper()
	pid, err := r.client(name).PID(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}
