package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Memory is what the manager's process needs, in bytes.
type Memory struct {
	Peak, Resident, Anonymous, File int64
	// Heap is what is in use of it, Next at how much the next collection begins.
	Heap, Next float64
}

// Memory looks at the process.
func (m *Manager) Memory(ctx context.Context) (Memory, error) {
	var is Memory
	for key, to := range map[string]*int64{"VmHWM:": &is.Peak, "VmRSS:": &is.Resident, "RssAnon:": &is.Anonymous, "RssFile:": &is.File} {
		n, err := statusOf(m.process.Process.Pid, key)
		if err != nil {
			return is, err
		}
		*to = n
	}
	metrics, err := m.Scrape(ctx)
	is.Heap, is.Next = metrics["go_memstats_heap_inuse_bytes"], metrics["go_memstats_next_gc_bytes"]
	return is, err
}

// Print tells what the manager's process needs.
func (m Memory) Print(w io.Writer) {
	fmt.Fprintf(w, "resident %.1f MiB, peak %.1f; now %.1f of it anonymous, %.1f pages of the binary; heap in use %.1f MiB, next collection at %.1f\n",
		MiB(m.Resident), MiB(m.Peak), MiB(m.Anonymous), MiB(m.File), MiB(m.Heap), MiB(m.Next))
}

// statusOf reads a number of kilobytes from /proc/<pid>/status, in bytes.
func statusOf(pid int, key string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no line %s", pid, key)
}
