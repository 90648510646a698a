//go:build vmguest && !sandbox

// The test in this file runs in a virtual machine only; vm_test.go starts it.

package sandbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/machine"
	"github.com/holdfast-dev/holdfast/internal/testvm/guest"
)

var (
	binariesFlag = flag.String("binaries", "", "folder with containerd and kubelet")
	pauseFlag    = flag.String("pause", "", "the pause program")
)

// TestMain: this binary stands in for the sandbox program as well.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "init" {
		fmt.Fprintln(os.Stderr, machine.Init(os.Args[2]))
		os.Exit(1)
	}
	guest.Main(m)
}

// leaveRootfs makes the root something that can be pivoted away from, which runc
// does and the kernel's first root does not allow (pivot_root(2)).
func leaveRootfs() error {
	const dir = "/newroot"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(dir, "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	return unix.Chroot(".")
}

// TestNodeUnderV2 boots one node as Start does, with the same configuration, but
// without an API server: an emulated CPU is too slow for one. kubelet runs a Pod
// from a file, in the cgroups that it has made.
func TestNodeUnderV2(t *testing.T) {
	if err := leaveRootfs(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/var/lib", "/var/log", "/usr/lib/cni"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeEtc(t)
	layout, err := cgroup.Detect()
	if err != nil || !layout.Pure2() {
		t.Fatalf("this machine has %+v, %v; want cgroup v2 alone", layout, err)
	}
	s, o := newNodeOnly(t, layout)
	t.Cleanup(func() {
		if t.Failed() {
			printLogs(t, s)
		}
		if err := s.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	bootNodeOnly(t, s, o)
	eventuallyIn(t, 4*time.Minute, "the Pod runs in its own cgroup", func() error {
		if err := s.deadComponent(t.Context(), []string{Kubelet + "/node-a1", Containerd + "/node-a1"}); err != nil {
			t.Fatal(err)
		}
		out, err := s.NodeCommand(t.Context(), "node-a1", "ctr", "tasks", "ls")
		if err != nil {
			return err
		}
		if n := strings.Count(string(out), "RUNNING"); n != 2 { // the Pod's sandbox and its container
			return fmt.Errorf("%d containers run: %s", n, out)
		}
		return podCgroup(s)
	})
	began := time.Now()
	if err := s.PowerOff(t.Context(), "node-a1"); err != nil {
		t.Fatal(err)
	}
	t.Logf("power off took %s", time.Since(began))
}

// writeEtc makes the files that kubelet and containerd read, which a machine has.
func writeEtc(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll("/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n", "hosts": "127.0.0.1 localhost\n", "resolv.conf": "",
	} {
		if err := os.WriteFile(filepath.Join("/etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// podCgroup looks for a process below kubelet's group for Pods, and its limit.
func podCgroup(s *Sandbox) error {
	root := filepath.Join(s.rec.Cgroups.Hierarchies[0].Mount, s.rec.nodeGroup("node-a1"), "kubepods")
	pids, err := s.rec.Cgroups.Processes(filepath.Join(s.rec.nodeGroup("node-a1"), "kubepods"))
	if err != nil {
		return err
	}
	if len(pids) < 2 {
		return fmt.Errorf("%d processes in %s", len(pids), root)
	}
	limits, err := filepath.Glob(root + "/burstable/pod*/memory.max")
	if err != nil || len(limits) != 1 {
		return fmt.Errorf("memory limits %q in %s, %v", limits, root, err)
	}
	raw, err := os.ReadFile(limits[0])
	if err == nil && strings.TrimSpace(string(raw)) != fmt.Sprint(64<<20) {
		err = fmt.Errorf("memory limit %q in %s, want 64 MiB", raw, limits[0])
	}
	return err
}

func newNodeOnly(t *testing.T, layout cgroup.Layout) (*Sandbox, Options) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stand := t.TempDir()
	for name, target := range map[string]string{"sandbox": program, "ec2sim": *pauseFlag, "pause": *pauseFlag} {
		if err := os.Symlink(target, filepath.Join(stand, name)); err != nil {
			t.Fatal(err)
		}
	}
	o, nodes, err := Options{
		Name: "v2", Dir: filepath.Join(t.TempDir(), "s"), Binaries: *binariesFlag, Own: stand, Nodes: DefaultNodes()[:1],
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	return &Sandbox{out: os.Stdout, began: time.Now(), rec: record{
		Name: o.Name, Dir: o.Dir, Nodes: nodes, Binaries: o.Binaries, Cgroups: layout,
	}}, o
}

const staticPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "still"}, "spec": {"hostNetwork": true, "containers": [
  {"name": "c", "image": "` + pauseImage + `", "imagePullPolicy": "Never", "resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "32Mi"}}}]}}`

// bootNodeOnly does what Start does, as far as the node needs it.
func bootNodeOnly(t *testing.T, s *Sandbox, o Options) {
	t.Helper()
	release, err := s.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := s.prepare(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	listeners, err := s.listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.rec.writeConfig(), s.connect()); err != nil {
		t.Fatal(err)
	}
	p := s.paths()
	manifests := p.node("node-a1", "manifests")
	config := p.node("node-a1", "kubelet.yaml")
	raw, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, append(raw, []byte("staticPodPath: "+manifests+"\n")...), 0o600)
	}
	if err == nil {
		err = os.MkdirAll(manifests, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(manifests, "still.json"), []byte(staticPod), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.startTop(t.Context(), o, listeners); err != nil {
		t.Fatal(err)
	}
	s.progress("top runs")
	if err := s.bootNode(t.Context(), s.rec.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	s.progress("containerd answers, kubelet is started")
}

func eventuallyIn(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Second)
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

func printLogs(t *testing.T, s *Sandbox) {
	t.Helper()
	files, err := filepath.Glob(s.Logs() + "/*.log")
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		lines := strings.Split(string(raw), "\n")
		t.Logf("%s (%v):\n%s", f, err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}
