package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is the unit of /proc/<pid>/stat on every architecture that Go
// knows (USER_HZ, proc(5)).
const ticksPerSecond = 100

// processorTime is how long processors have worked, to tell whether the
// simulator, rather than the driver, is what a run waits for.
type processorTime struct {
	at     time.Time
	own    time.Duration // the simulator's and the clients', which are this process
	driver time.Duration // 0: its process is not known
}

func readProcessorTime(pid int) processorTime {
	p := processorTime{at: time.Now()}
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		p.own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if pid != 0 {
		p.driver, _ = ticksOf(pid) // unknown where the process has gone
	}
	return p
}

// ticksOf reads the processor time of a process.
func ticksOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may hold anything; utime and stime are the 12th and 13th behind it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields behind the name, want 13 and more", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// since says what was used between two readings.
func (p processorTime) since(before processorTime) string {
	return fmt.Sprintf("processor time: simulator and clients %.1f s, driver %.1f s, of %.0f s on %d processors",
		(p.own - before.own).Seconds(), (p.driver - before.driver).Seconds(), p.at.Sub(before.at).Seconds(), runtime.NumCPU())
}
