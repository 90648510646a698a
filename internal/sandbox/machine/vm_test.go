//go:build vm

package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testvm"
)

// TestUnderCgroupV2 runs this package's tests in a virtual machine, whose kernel
// has cgroup v2 alone, as ordinary machines do. What it cannot show is a kubelet
// there: an emulated CPU is too slow for a cluster.
func TestUnderCgroupV2(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	cache, err := testvm.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := testvm.FindKernel(ctx, cache)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "machine.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "sandbox", "-ldflags", "-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // there are no shared libraries in the virtual machine
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	passed := map[string]bool{}
	code, err := testvm.Run(ctx, testvm.Config{
		Dir: dir, Kernel: kernel, Modules: []string{"bridge", "veth"}, Binary: binary,
		Args: []string{"-test.v", "-test.timeout=8m"},
		Console: func(line string) {
			fmt.Fprintln(t.Output(), line)
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- PASS: "); ok {
				passed[strings.Fields(name)[0]] = true
			}
		},
	})
	if err != nil || code != 0 {
		t.Fatalf("the tests in the virtual machine end with status %d, %v", code, err)
	}
	if !passed["TestMachines"] {
		t.Error("the virtual machine did not run TestMachines")
	}
}
