package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
)

// sampleEvery is how often memory is looked at.
const sampleEvery = 50 * time.Millisecond

// memory is how much memory the driver needs.
type memory struct {
	// workingSet is the largest working set of its cgroup, as kubelet computes
	// it: usage without inactive file pages. 0: it is in no cgroup of its own.
	workingSet int64
	// resident is the largest resident set of the process (VmHWM).
	resident int64
}

func (m memory) String() string {
	if m.workingSet == 0 {
		return fmt.Sprintf("%.1f*", mib(m.resident))
	}
	return fmt.Sprintf("%.1f", mib(m.workingSet))
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// memoryGroup is a cgroup for one process.
type memoryGroup struct {
	layout cgroup.Layout
	name   string
	dir    string // of the hierarchy that counts memory
	usage  string // name of the file with the usage in bytes
	key    string // of the inactive file pages in memory.stat
}

// newMemoryGroup makes the cgroup. It fails where this process may not.
func newMemoryGroup(name string) (*memoryGroup, error) {
	layout, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	g := &memoryGroup{layout: layout, name: name}
	for _, h := range layout.Hierarchies {
		if h.V2() && layout.Pure2() {
			g.dir, g.usage, g.key = filepath.Join(h.Mount, name), "memory.current", "inactive_file"
		}
		if slices.Contains(strings.Split(h.Controllers, ","), "memory") {
			g.dir, g.usage, g.key = filepath.Join(h.Mount, name), "memory.usage_in_bytes", "total_inactive_file"
		}
	}
	if g.dir == "" {
		return nil, fmt.Errorf("no cgroup hierarchy counts memory")
	}
	if err := layout.Create(name); err != nil {
		return nil, err
	}
	if _, err := g.workingSet(); err != nil {
		return nil, err
	}
	return g, nil
}

// enter is a command that goes before a program's: it enters the cgroup and
// becomes the program, so that nothing of it is counted elsewhere.
func (g *memoryGroup) enter() []string {
	return []string{"sh", "-c", `echo $$ >"$1" && shift && exec "$@"`, "sh", filepath.Join(g.dir, "cgroup.procs")}
}

func (g *memoryGroup) workingSet() (int64, error) {
	usage, err := readNumber(filepath.Join(g.dir, g.usage))
	if err != nil {
		return 0, err
	}
	inactive, err := readKey(filepath.Join(g.dir, "memory.stat"), g.key, " ")
	return max(0, usage-inactive), err
}

func (g *memoryGroup) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return g.layout.Remove(ctx, g.name)
}

func readNumber(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// readKey reads the number behind a key at the beginning of a line.
func readKey(path, key, separator string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), key+separator); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %s", path, key)
}

// gauge samples the memory of a process. A nil gauge shows nothing.
type gauge struct {
	pid   int
	group *memoryGroup // nil: none

	mu      sync.Mutex
	largest int64
	stop    context.CancelFunc
	ended   chan struct{}
}

// newGauge begins to sample.
func newGauge(pid int, group *memoryGroup) *gauge {
	ctx, cancel := context.WithCancel(context.Background())
	g := &gauge{pid: pid, group: group, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			g.sample()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return g
}

func (g *gauge) sample() {
	if g.group == nil {
		return
	}
	if set, err := g.group.workingSet(); err == nil { // an error means that the process has gone
		g.mu.Lock()
		g.largest = max(g.largest, set)
		g.mu.Unlock()
	}
}

// begin forgets the largest working set so far.
func (g *gauge) begin() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.largest = 0
}

// peak is the largest since begin; the resident set since the process began.
func (g *gauge) peak() memory {
	if g == nil {
		return memory{}
	}
	g.sample()
	resident, err := readKey(fmt.Sprintf("/proc/%d/status", g.pid), "VmHWM", ":")
	if err != nil {
		resident = 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return memory{workingSet: g.largest, resident: resident * 1024}
}

func (g *gauge) close() {
	if g != nil {
		g.stop()
		<-g.ended
	}
}
