//go:build vm

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/toolchain"
	"github.com/holdfast-dev/holdfast/internal/testvm"
)

// TestNodeInVM runs guest_test.go in a virtual machine, whose kernel has cgroup v2
// alone, as ordinary machines do.
func TestNodeInVM(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Minute)
	defer cancel()
	binaries, err := toolchain.Build(ctx, toolchain.Options{Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := testvm.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := testvm.FindKernel(ctx, cache)
	if err != nil {
		t.Fatal(err)
	}
	// The virtual machine has a /tmp of its own, which would hide the programs.
	own, err := os.MkdirTemp(cache, "vm-own-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(own) })
	build(ctx, t, "build", "-o", filepath.Join(own, "pause"), "./pause")
	build(ctx, t, "test", "-c", "-tags", "vmguest", "-ldflags", "-s -w", "-o", filepath.Join(own, "guest.test"), ".")
	tools := []string{filepath.Join(own, "pause")}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "kubelet"} {
		tools = append(tools, filepath.Join(binaries, p))
	}
	for _, p := range []string{"runc", "mount", "umount"} {
		path, err := exec.LookPath(p)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, path)
	}
	passed := false
	code, err := testvm.Run(ctx, testvm.Config{
		Dir: t.TempDir(), Kernel: kernel, Modules: []string{"bridge", "veth", "overlay"},
		Binary: filepath.Join(own, "guest.test"), Tools: tools, MemoryMiB: 2048,
		Args: []string{"-test.v", "-test.timeout=12m", "-test.run=TestNodeUnderV2", "-binaries=" + binaries, "-pause=" + filepath.Join(own, "pause")},
		Console: func(line string) {
			fmt.Fprintln(t.Output(), line)
			passed = passed || strings.HasPrefix(strings.TrimSpace(line), "--- PASS: TestNodeUnderV2")
		},
	})
	if err != nil || code != 0 || !passed {
		t.Fatalf("the test in the virtual machine ends with status %d, %v", code, err)
	}
}

// build runs the go command for programs that need no shared libraries.
func build(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}
