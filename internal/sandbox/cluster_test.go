//go:build sandbox

// The tests in this file need root, the programs that package toolchain builds
// and some minutes: go test -tags sandbox ./internal/sandbox

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
)

const testImage = "holdfast.test/testpod:1"

// testLog lets progress appear as the test's own log.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// own is the folder with this repository's programs, built once for all tests.
var own string

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root: run them with sudo")
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "holdfast-sandbox-own-")
	if err == nil {
		own = dir
		err = os.Chmod(dir, 0o755) // one test runs them as nobody
	}
	if err == nil {
		err = toolchain.Own(context.Background(), toolchain.Options{}, dir,
			"./cmd/sandbox", "./cmd/ec2sim", "./internal/sandbox/pause", "./internal/sandbox/testpod")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// options are those of a sandbox of this test alone.
func options(t *testing.T, suffix string) Options {
	return Options{
		Name: fmt.Sprintf("test-%d-%s", os.Getpid(), suffix),
		Dir:  filepath.Join(t.TempDir(), "s"),
		Own:  own,
		Out:  testLog{t},
	}
}

// start brings a sandbox up and takes it down when the test ends.
func start(t *testing.T, o Options) *Sandbox {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepLogsOf(t, s)
		}
		if err := DownAt(context.Background(), o.Name, o.Dir); err != nil {
			t.Error(err)
		}
	})
	return s
}

// keepLogsOf saves the logs of a sandbox whose test has failed.
func keepLogsOf(t *testing.T, s *Sandbox) {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-sandbox-failed-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(s.Logs()))
	}
	t.Logf("logs of %s are kept in %s (%v)", s.Name(), dir, err)
}

func kubectl(t *testing.T, s *Sandbox, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func apply(t *testing.T, s *Sandbox, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, s, "apply", "-f", file)
}

// pod is the manifest of a Pod that serves its name on a port.
func pod(name, node string, port int, hostNetwork bool) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  nodeName: %[2]s
  hostNetwork: %[4]t
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %[5]s, args: [serve, ":%[3]d"], readinessProbe: {httpGet: {port: %[3]d}, periodSeconds: 1}}
`, name, node, port, hostNetwork, testImage)
}

func loadTestImage(t *testing.T, s *Sandbox) {
	t.Helper()
	tar := filepath.Join(t.TempDir(), "testpod.tar")
	if err := packImage(filepath.Join(own, "testpod"), testImage, tar); err != nil {
		t.Fatal(err)
	}
	if err := s.LoadImages(t.Context(), tar); err != nil {
		t.Fatal(err)
	}
}

func TestCluster(t *testing.T) {
	s := start(t, options(t, "a"))
	loadTestImage(t, s)
	apply(t, s, pod("web", "node-a1", 8080, false)+pod("far", "node-b1", 8080, false)+pod("host", "node-a2", 8081, true)+`
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`)
	kubectl(t, s, "wait", "--for=condition=Ready", "pod/web", "pod/far", "pod/host", "--timeout=60s")
	t.Run("network", func(t *testing.T) { testNetwork(t, s) })
	t.Run("metadata", func(t *testing.T) {
		for from, want := range map[string]string{
			"web": "i-0000000000000a001", "far": "i-0000000000000b001", "host": "i-0000000000000a002",
		} {
			if got := kubectl(t, s, "exec", from, "--", "/testpod", "instance", "http://"+imdsIP); got != want {
				t.Errorf("Pod %s is told that it runs on %q, want %q", from, got, want)
			}
		}
	})
	t.Run("logs", func(t *testing.T) {
		if got := kubectl(t, s, "logs", "web"); got != "serving :8080" {
			t.Errorf("logs say %q", got)
		}
	})
	t.Run("snapshot kinds", func(t *testing.T) { testSnapshotKinds(t, s) })
	t.Run("open", func(t *testing.T) { testOpen(t, s) })
	t.Run("commands", func(t *testing.T) { testCommands(t, s) })
	t.Run("machine untouched", func(t *testing.T) { testMachineUntouched(t, s) })
	t.Run("components", func(t *testing.T) { testComponents(t, s) })
	t.Run("power", func(t *testing.T) { testPower(t, s) })
	t.Run("taken name", func(t *testing.T) {
		if _, err := Start(t.Context(), Options{Name: s.Name(), Dir: s.Dir(), Own: own}); !errors.Is(err, ErrRunning) {
			t.Errorf("second start of a running sandbox: %v, want ErrRunning", err)
		}
		kubectl(t, s, "get", "nodes") // and the first is unharmed
	})
	t.Run("side by side", func(t *testing.T) { testSideBySide(t, s) })
}

func testNetwork(t *testing.T, s *Sandbox) {
	ip := kubectl(t, s, "get", "pod", "web", "-o", "jsonpath={.status.podIP}")
	service := kubectl(t, s, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")

	for name, tc := range map[string]struct{ why, from, url, want string }{
		"pod to pod":       {"Pods reach Pods of other nodes", "far", "http://" + ip + ":8080", "web"},
		"pod to service":   {"kube-proxy serves Pods", "far", "http://" + service, "web"},
		"node to service":  {"kube-proxy serves the node itself", "host", "http://" + service, "web"},
		"pod to node":      {"a Pod with hostNetwork is at its node's address", "far", "http://10.200.0.12:8081", "node-a2"},
		"service from own": {"a Pod reaches itself through its service", "web", "http://" + service, "web"},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, tc.why, func() error { // rules for a new service take a moment
				out, err := s.Kubectl(t.Context(), "exec", tc.from, "--", "/testpod", "get", tc.url)
				if got := strings.TrimSpace(string(out)); err == nil && got != tc.want {
					err = fmt.Errorf("%s from %s says %q, want %q", tc.url, tc.from, got, tc.want)
				}
				return err
			})
		})
	}
}

func testSnapshotKinds(t *testing.T, s *Sandbox) {
	kubectl(t, s, "get", "volumesnapshots,volumesnapshotclasses,volumesnapshotcontents,volumegroupsnapshots")
	// Without the first two rights, the controller does nothing for half a minute.
	for what, want := range map[string]string{
		"list volumesnapshots": "yes", "list volumegroupsnapshots.groupsnapshot.storage.k8s.io": "yes",
		"list secrets": "no", "delete persistentvolumes": "no",
	} {
		verb, resource, _ := strings.Cut(what, " ")
		out, _ := s.Kubectl(t.Context(), "auth", "can-i", verb, resource, "--as", SnapshotController, "-A")
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("may snapshot-controller %s? %q, want %q", what, got, want)
		}
	}
}

func testOpen(t *testing.T, s *Sandbox) {
	o, err := OpenAt(s.Name(), s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if o.Kubeconfig() != s.Kubeconfig() || o.EC2Endpoint() != s.EC2Endpoint() {
		t.Errorf("opened %s and %s, want %s and %s", o.Kubeconfig(), o.EC2Endpoint(), s.Kubeconfig(), s.EC2Endpoint())
	}
	for _, n := range o.Nodes() {
		if n.PID == 0 {
			t.Errorf("node %s seems to be off", n.Name)
		}
	}
	if err := getPlain(t.Context(), o.EC2Endpoint()+"/_sim/state"); err != nil {
		t.Error(err)
	}
	if _, err := OpenAt("nobody", filepath.Join(t.TempDir(), "no")); !errors.Is(err, ErrNotFound) {
		t.Errorf("open of an unknown sandbox: %v, want ErrNotFound", err)
	}
}

func testCommands(t *testing.T, s *Sandbox) {
	out, err := s.NodeCommand(t.Context(), "node-a2", "sh", "-c", "hostname; test -S /run/containerd/containerd.sock && test -b /dev/loop7 && echo own")
	if err != nil || string(out) != "node-a2\nown\n" {
		t.Errorf("command on node-a2 prints %q, %v", out, err)
	}
	_, err = s.NodeCommand(t.Context(), "node-a2", "sh", "-c", "echo no >&2; exit 7")
	var failed *ExitError
	if !errors.As(err, &failed) || failed.Code != 7 || failed.Stderr != "no" {
		t.Errorf("failing command: %v, want exit code 7 and its words", err)
	}
	if _, err := s.NodeCommand(t.Context(), "node-a2", "no-such-program"); err == nil || errors.As(err, &failed) && failed.Argv[0] == "no-such-program" {
		t.Errorf("missing program: %v, want an error of the init", err)
	}
	if _, err := s.NodeCommand(t.Context(), "node-x", "true"); err == nil || !strings.Contains(err.Error(), "node-a1") {
		t.Errorf("unknown node: %v, want the nodes that there are", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.NodeCommand(ctx, "node-a2", "sleep", "7654"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("command beyond its context: %v", err)
	}
	eventually(t, "the command ends with its context", func() error {
		out, err := s.NodeCommand(t.Context(), "node-a2", "pgrep", "-f", "^sleep 7654")
		if !errors.As(err, &failed) {
			return fmt.Errorf("still there: %s %w", out, err)
		}
		return nil
	})
	var got bytes.Buffer
	if err := s.Exec(t.Context(), "node-b1", Streams{In: strings.NewReader("in"), Out: &got}, "cat"); err != nil || got.String() != "in" {
		t.Errorf("cat says %q, %v", got.String(), err)
	}
}

// testMachineUntouched: kubelet would write these for the whole machine.
func testMachineUntouched(t *testing.T, s *Sandbox) {
	for _, n := range s.Nodes() {
		out, err := s.NodeCommand(t.Context(), n.Name, "cat", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic")
		if err != nil || string(out) != "1\n10\n" {
			t.Errorf("%s sees kernel settings %q, %v", n.Name, out, err)
		}
	}
	// kubelet and containerd make folders here, which would stay on the machine.
	if out, err := s.NodeCommand(t.Context(), "node-a1", "mkdir", "/usr/left", "/opt/left", "/etc/left", "/mnt/left"); err == nil {
		t.Errorf("a node can write to the machine's file system: %s", out)
	}
	for _, l := range mountsOf(t, os.Getpid(), s.Dir()) {
		t.Errorf("mount in the machine's namespace: %s", l)
	}
}

func testComponents(t *testing.T, s *Sandbox) {
	for _, name := range []string{Containerd + "/node-a1", Kubelet + "/node-a1", EC2, Etcd, APIServer, Forwarder, ControllerManager} {
		if err := s.StopComponent(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := s.deadComponent(t.Context(), []string{name}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("after %s was killed: %v, want an error that names it", name, err)
		}
		if err := s.StartComponent(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, s, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	if err := s.StartComponent(t.Context(), EC2); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("second start of a component: %v", err)
	}
	if err := s.StopComponent(t.Context(), "kubelet"); err == nil || !strings.Contains(err.Error(), "kubelet/node-a1") {
		t.Errorf("unknown component: %v, want the names that there are", err)
	}
}

func testPower(t *testing.T, s *Sandbox) {
	if err := s.PowerOff(t.Context(), "node-b1"); err != nil {
		t.Fatal(err)
	}
	if n := s.Nodes()[2]; n.PID != 0 {
		t.Errorf("node-b1 is off, and has process %d", n.PID)
	}
	began := time.Now()
	kubectl(t, s, "wait", "--for=condition=Ready=Unknown", "node/node-b1", "--timeout=60s")
	t.Logf("NotReady after %s", time.Since(began))
	if err := s.PowerOff(t.Context(), "node-b1"); err != nil {
		t.Errorf("power off twice: %v", err)
	}
	began = time.Now()
	if err := s.PowerOn(t.Context(), "node-b1"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, s, "wait", "--for=condition=Ready", "node/node-b1", "--timeout=60s")
	t.Logf("Ready again after %s", time.Since(began))
	kubectl(t, s, "wait", "--for=condition=Ready", "pod/far", "--timeout=60s")
	t.Logf("its Pod is Ready after %s", time.Since(began))
}

func testSideBySide(t *testing.T, first *Sandbox) {
	o := options(t, "b")
	o.Nodes = []NodeSpec{{Name: "only", Zone: "us-east-1c"}}
	second := start(t, o)
	if got := kubectl(t, second, "get", "nodes", "-o", "name"); got != "node/only" {
		t.Errorf("the second sandbox has nodes %q", got)
	}
	if got := strings.Count(kubectl(t, first, "get", "nodes", "-o", "name"), "node/"); got != 3 {
		t.Errorf("the first sandbox has %d nodes", got)
	}
	if err := second.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, second)
	kubectl(t, first, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
}

// TestDown kills a sandbox in several ways; take-down must not need any of it.
func TestDown(t *testing.T) {
	for name, kill := range map[string]func(*testing.T, *Sandbox){
		"alive": func(*testing.T, *Sandbox) {},
		"first process killed": func(t *testing.T, s *Sandbox) {
			pid, err := s.top().PID(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		"all killed and state unreadable": func(t *testing.T, s *Sandbox) {
			killAll(t, s)
			if err := os.WriteFile(s.paths().record(), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"alive and record lost": func(t *testing.T, s *Sandbox) {
			if err := os.Remove(s.paths().record()); err != nil {
				t.Fatal(err)
			}
			err := DownAt(t.Context(), s.Name()+"-typo", s.Dir())
			if err == nil || !strings.Contains(err.Error(), "another sandbox than") {
				t.Errorf("down with another name: %v", err)
			}
			if _, err := s.top().PID(t.Context()); err != nil {
				t.Errorf("it was to be left alone: %v", err)
			}
		},
		"all killed and record lost": func(t *testing.T, s *Sandbox) {
			killAll(t, s)
			if err := os.Remove(s.paths().record()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "d")
			s := start(t, o)
			loops := leaveLoops(t, s)
			kill(t, s)
			began := time.Now()
			for range 2 {
				if err := DownAt(t.Context(), o.Name, o.Dir); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("down twice in %s", time.Since(began))
			assertNothingLeft(t, s, loops...)
		})
	}
}

func killAll(t *testing.T, s *Sandbox) {
	t.Helper()
	pids, err := s.rec.Cgroups.Processes(cgroupOf(s.Name()))
	if err != nil || len(pids) < 20 {
		t.Fatalf("%d processes, %v", len(pids), err)
	}
	for _, p := range pids {
		_ = unix.Kill(p, unix.SIGKILL)
	}
}

// TestEndOfContext: a sandbox that is not detached goes with its context.
func TestEndOfContext(t *testing.T) {
	o := options(t, "c")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	eventually(t, "the folder goes", func() error {
		if _, err := os.Stat(s.Dir()); err == nil {
			return errors.New("still there")
		}
		return nil
	})
	assertNothingLeft(t, s)
}

// TestFailedStart: a component that does not start is named, with its own words,
// and nothing but the logs stays.
func TestFailedStart(t *testing.T) {
	o := options(t, "f")
	built, err := toolchain.Build(t.Context(), toolchain.Options{Out: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	o.Binaries = t.TempDir()
	entries, err := os.ReadDir(built)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == Etcd {
			continue
		}
		if err := os.Symlink(filepath.Join(built, e.Name()), filepath.Join(o.Binaries, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\necho the dog ate the disk\nexit 3\n"
	if err := os.WriteFile(filepath.Join(o.Binaries, Etcd), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), o)
	log := (paths{o.Dir}).log(Etcd)
	for _, want := range []string{"etcd has ended with exit code 3", "the dog ate the disk", log} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
	if _, err := os.Stat(log); err != nil {
		t.Error(err)
	}
	if err := DownAt(t.Context(), o.Name, o.Dir); err != nil {
		t.Error(err)
	}
	assertNothingLeft(t, &Sandbox{rec: record{Name: o.Name, Dir: o.Dir}})
}

// leaveLoops makes a loop device on a file of the sandbox, and one on top of it, as
// kubelet does for raw block volumes, from inside a node.
func leaveLoops(t *testing.T, s *Sandbox) []boundLoop {
	t.Helper()
	file := s.paths().in("ec2", "left.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	out, err := s.NodeCommand(t.Context(), "node-a1", "sh", "-ec",
		"d=$(losetup -f --show "+file+"); losetup -f --show $d; mkfs.ext4 -q $d; mkdir -p /run/left; mount $d /run/left")
	if err != nil {
		t.Fatal(err)
	}
	loops := loopsBelow(t, s.Dir())
	if len(loops) != 2 {
		t.Fatalf("loop devices of the sandbox: %v (made %q)", loops, out)
	}
	return loops
}

// assertNothingLeft looks for everything that a sandbox could leave behind. The
// loops are those that it had before it was taken down.
func assertNothingLeft(t *testing.T, s *Sandbox, loops ...boundLoop) {
	t.Helper()
	if _, err := os.Lstat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s: %v", s.Dir(), err)
	}
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range layout.Folders(cgroupOf(s.Name())) {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("cgroup %s is left", dir)
		}
	}
	for _, port := range []int{s.rec.APIPort, s.rec.EC2Port} {
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); port != 0 && err == nil {
			_ = c.Close()
			t.Errorf("port %d still answers", port)
		}
	}
	for _, l := range loops {
		if l.isLeft(t) {
			t.Errorf("loop device %d is left", l.number)
		}
	}
	for _, pid := range processes(t) {
		if raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(raw, []byte(s.Dir())) {
			t.Errorf("process %d is left: %q", pid, raw)
		}
		for _, l := range mountsOf(t, pid, s.Dir()) {
			t.Errorf("process %d has a mount left: %s", pid, l)
		}
	}
}

func processes(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// mountsOf lists the mounts of a process that name the folder.
func mountsOf(t *testing.T, pid int, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil // it has ended, or is a kernel thread
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, dir) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// eventually polls for half a minute.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}
