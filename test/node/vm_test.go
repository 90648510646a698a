//go:build vm

package node

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testvm"
)

// tools are the programs that the node service runs, as in the node's image,
// and a few that only the tests use to damage filesystems.
var tools = []string{
	"blkid", "blockdev", "mkfs.ext3", "mkfs.ext4", "mkfs.xfs", "fsck", "fsck.ext3", "fsck.ext4",
	"mount", "umount", "resize2fs", "xfs_growfs", "xfs_io", "losetup", "debugfs", "dumpe2fs", "mkswap",
}

// patience is how long the machine may take. It needs less than a minute on two
// idle cores and many times that on busy ones.
const patience = 9 * time.Minute

// run selects tests inside the machine, as -run does outside:
// go test -tags vm -v ./test/node -args -guest.run=TestRawBlock
var run = flag.String("guest.run", ".", "run only the tests in the machine that match this regular expression")

// TestNodeInMachine runs package guest inside a machine and reports each of its
// tests.
func TestNodeInMachine(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	results := newResults()
	code, err := testvm.Run(ctx, testvm.Config{
		Dir:     dir,
		Kernel:  kernel,
		Modules: []string{"loop", "xfs", "crc32c_intel"},
		Binary:  build(ctx, t, dir),
		Args:    []string{"-test.v", "-test.timeout=8m", "-test.run=" + *run},
		Tools:   find(t, tools),
		Console: func(line string) { results.add(t, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	results.report(t)
	if code != 0 && !t.Failed() {
		t.Errorf("the tests ended with status %d", code)
	}
}

// build compiles package guest.
func build(ctx context.Context, t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "guest.test")
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "vmguest", "-ldflags", "-s -w", "-o", binary, "./guest").CombinedOutput()
	if err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	return binary
}

// find looks up programs.
func find(t *testing.T, names []string) []string {
	t.Helper()
	var paths []string
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v (Debian packages e2fsprogs, xfsprogs, util-linux, mount)", err)
		}
		paths = append(paths, path)
	}
	return paths
}

// results gathers what the machine prints, test by test.
type results struct {
	start time.Time
	order []string
	state map[string]string // PASS, FAIL, SKIP
}

func newResults() *results { return &results{start: time.Now(), state: map[string]string{}} }

var resultLine = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) `)

// add logs a line, and keeps it if it is a test's result.
func (r *results) add(t *testing.T, line string) {
	fmt.Fprintf(t.Output(), "%6.2f %s\n", time.Since(r.start).Seconds(), line)
	m := resultLine.FindStringSubmatch(line)
	if m == nil || strings.Contains(m[2], "/") {
		return
	}
	r.order = append(r.order, m[2])
	r.state[m[2]] = m[1]
}

// report repeats the results as subtests. A test that was left out counts as
// failed: the machine has all that the tests need.
func (r *results) report(t *testing.T) {
	if len(r.order) == 0 {
		t.Error("the machine ran no test")
	}
	for _, name := range r.order {
		t.Run(name, func(t *testing.T) {
			if r.state[name] != "PASS" {
				t.Errorf("%s in the machine: see its output above", r.state[name])
			}
		})
	}
}
