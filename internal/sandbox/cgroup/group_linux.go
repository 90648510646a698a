package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pollEvery is how often Kill and Remove look again: a killed container is gone
// within a few milliseconds, its group a little later.
const pollEvery = 10 * time.Millisecond

// Create makes the group (a path such as "holdfast-sandbox-x/node-a1") and its
// parents in every hierarchy, ready to take processes. It is idempotent.
func (l Layout) Create(group string) error {
	parts := strings.Split(filepath.Clean(group), "/")
	for _, h := range l.Hierarchies {
		dir := h.Mount
		for _, p := range parts {
			if h.V2() && l.Pure2() {
				if err := delegate(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, p)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("create cgroup %s: %w", dir, err)
			}
			if !h.V2() {
				if err := inheritCpuset(parent, dir); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inheritCpuset copies the CPUs and memory nodes of a v1 cpuset: a new one is
// empty and takes no process (cpuset(7)). Other hierarchies have no such files. In
// v2 an empty one means "as the parent".
func inheritCpuset(parent, dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(dir, f))
		if errors.Is(err, fs.ErrNotExist) || len(strings.TrimSpace(string(have))) > 0 {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s of cgroup %s: %w", f, dir, err)
		}
		want, err := os.ReadFile(filepath.Join(parent, f))
		if err != nil {
			return fmt.Errorf("read %s of cgroup %s: %w", f, parent, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), want, 0); err != nil {
			return fmt.Errorf("set %s of cgroup %s: %w", f, dir, err)
		}
	}
	return nil
}

// needed are the controllers that kubelet cannot do without
// (pkg/kubelet/cm, cgroup v2). A kernel may refuse others, for reasons of its own.
var needed = []string{"cpu", "cpuset", "memory", "pids"}

// delegate hands every controller that dir has on to its children.
func delegate(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read controllers of cgroup %s: %w", dir, err)
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("read controllers of cgroup %s: %w", dir, err)
	}
	for _, c := range missing(strings.Fields(string(have)), strings.Fields(string(enabled))) {
		if err := enable(control, c); err != nil && slices.Contains(needed, c) {
			return fmt.Errorf("hand controller %s of cgroup %s to its children: %w", c, dir, err)
		}
	}
	return nil
}

// enable adds one controller to those that are handed down.
func enable(control, controller string) error {
	f, err := os.OpenFile(control, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("+" + controller)
	return errors.Join(err, f.Close())
}

// missing lists the controllers that are not handed down yet.
func missing(have, enabled []string) []string {
	var out []string
	for _, c := range have {
		if !slices.Contains(enabled, c) {
			out = append(out, c)
		}
	}
	return out
}

// Enter moves a process into the group in every hierarchy.
func (l Layout) Enter(group string, pid int) error {
	for _, dir := range l.Folders(group) {
		procs := filepath.Join(dir, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d into cgroup %s: %w", pid, dir, err)
		}
	}
	return nil
}

// PrepareV2Node makes the root of a node's cgroup namespace fit for kubelet:
// this process moves into a leaf, and the controllers go to the children.
func PrepareV2Node(root string) error {
	leaf := filepath.Join(root, "node.scope")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create cgroup %s: %w", leaf, err)
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("move into cgroup %s: %w", leaf, err)
	}
	return delegate(root)
}

// Processes lists the processes in the group and below it, in any hierarchy.
func (l Layout) Processes(group string) ([]int, error) {
	var pids []int
	for _, root := range l.Folders(group) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.Name() != "cgroup.procs" {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
					return nil // the group went away while we looked
				}
				return err
			}
			for _, f := range strings.Fields(string(raw)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", root, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Kill ends every process in the group with SIGKILL and waits until none is
// left. It returns how many it found at first.
func (l Layout) Kill(ctx context.Context, group string) (int, error) {
	found := -1
	err := poll(ctx, func() (bool, error) {
		pids, err := l.Processes(group)
		if err != nil {
			return false, err
		}
		found = max(found, len(pids))
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return false, fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		return len(pids) == 0, nil
	})
	if err != nil {
		return max(found, 0), fmt.Errorf("end the processes of cgroup %s: %w", group, err)
	}
	return found, nil
}

// Remove deletes the group and everything below it in every hierarchy. It waits
// while the kernel still holds groups whose processes have just died.
func (l Layout) Remove(ctx context.Context, group string) error {
	var last error
	err := poll(ctx, func() (bool, error) {
		last = nil
		for _, root := range l.Folders(group) {
			last = errors.Join(last, rmdirTree(root))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", group, errors.Join(err, last))
	}
	return nil
}

// rmdirTree removes a folder and those below it, the deepest first. The files that
// the kernel shows in a cgroup go with it.
func rmdirTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// poll calls done until it says true or fails, or the context ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
