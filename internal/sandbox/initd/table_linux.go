package initd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Table holds the processes that the init has started, and reaps those it has not.
type Table struct {
	mu      sync.Mutex
	daemons map[string]*child
	byPID   map[int]*child
}

// child is a process with someone who wants to know how it ends.
type child struct {
	pid  int
	exit *Exit
	done chan struct{} // closed when exit is set
}

// NewTable starts to reap. There must be one in a process: it waits for any child,
// so that nothing else in the process may wait for one (os/exec does).
func NewTable() *Table {
	t := &Table{daemons: map[string]*child{}, byPID: map[int]*child{}}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		for range died {
			t.reap()
		}
	}()
	return t
}

// reap collects every child that has ended. One SIGCHLD may stand for several.
func (t *Table) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		c, ours := t.byPID[pid]
		if !ours {
			continue // an orphan, such as a container's shim
		}
		delete(t.byPID, pid)
		c.exit = exitOf(status)
		close(c.done)
	}
}

func exitOf(s unix.WaitStatus) *Exit {
	if s.Signaled() {
		return &Exit{Code: 128 + int(s.Signal()), Signal: s.Signal().String()}
	}
	return &Exit{Code: s.ExitStatus()}
}

// fork starts a process and registers it before it can be reaped.
func (t *Table) fork(argv []string, attr *syscall.ProcAttr) (*child, error) {
	path, err := lookPath(argv, attr.Env)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	c := &child{pid: pid, done: make(chan struct{})}
	t.byPID[pid] = c
	return c, nil
}

// lookPath finds the program in the PATH that the command will have, not in ours.
func lookPath(argv, env []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("no command given")
	}
	if strings.Contains(argv[0], "/") {
		return argv[0], nil
	}
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, argv[0])
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
		return "", fmt.Errorf("start %s: no such program in %s", argv[0], list)
	}
	return "", fmt.Errorf("start %s: no path to look for it in", argv[0])
}

// adopt gives a started process a name, so that Stop and List know it. The name
// must be free or that of one which has ended.
func (t *Table) adopt(name string, start func() (*child, error)) (*child, error) {
	t.mu.Lock()
	old, taken := t.daemons[name]
	t.mu.Unlock()
	if taken && !old.ended() {
		return nil, fmt.Errorf("%s is running already, as process %d", name, old.pid)
	}
	c, err := start()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.mu.Lock()
	t.daemons[name] = c
	t.mu.Unlock()
	return c, nil
}

// Start begins a daemon with exactly these attributes and gives it the name.
// started, if not nil, is called with its pid; if that fails the daemon is killed.
func (t *Table) Start(name string, argv []string, attr *syscall.ProcAttr, started func(pid int) error) (int, error) {
	c, err := t.adopt(name, func() (*child, error) { return t.fork(argv, attr) })
	if err != nil {
		return 0, err
	}
	if started == nil {
		return c.pid, nil
	}
	if err := started(c.pid); err != nil {
		return 0, errors.Join(fmt.Errorf("%s: %w", name, err), t.Stop(name, 0))
	}
	return c.pid, nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Stop ends a daemon and returns when it is gone. One that has ended, or was never
// started, is no error.
func (t *Table) Stop(name string, grace time.Duration) error {
	t.mu.Lock()
	c, known := t.daemons[name]
	t.mu.Unlock()
	if !known || c.ended() {
		return nil
	}
	if grace > 0 {
		if err := unix.Kill(c.pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop %s (process %d): %w", name, c.pid, err)
		}
		select {
		case <-c.done:
			return nil
		case <-time.After(grace):
		}
	}
	if err := unix.Kill(c.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %s (process %d): %w", name, c.pid, err)
	}
	<-c.done
	return nil
}

// List tells of every daemon, by name.
func (t *Table) List() []Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Process, 0, len(t.daemons))
	for name, c := range t.daemons {
		out = append(out, Process{Name: name, PID: c.pid, Exit: c.exit})
	}
	slices.SortFunc(out, func(a, b Process) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
