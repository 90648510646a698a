package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// TestDelegate plays cgroup v2's files with plain ones: which controllers are
// handed down is decided by their text alone.
func TestDelegate(t *testing.T) {
	for name, tc := range map[string]struct{ why, have, enabled, want string }{
		"none yet": {"all are handed down, one by one: the kernel takes all of a line or none", "cpu memory pids", "", "+cpu+memory+pids"},
		"some":     {"those that are handed down already stay", "cpu memory", "cpu", "cpu+memory"},
		"all":      {"nothing is written when there is nothing to do", "cpu", "cpu", "cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "cgroup.controllers"), tc.have+"\n")
			write(t, filepath.Join(dir, "cgroup.subtree_control"), tc.enabled)
			if err := delegate(dir); err != nil {
				t.Fatal(err)
			}
			if got := read(t, filepath.Join(dir, "cgroup.subtree_control")); got != tc.want {
				t.Errorf("%s: wrote %q, want %q", tc.why, got, tc.want)
			}
		})
	}
	if err := delegate(t.TempDir()); err == nil {
		t.Error("a folder that is no cgroup must be refused")
	}
}

func TestInheritCpuset(t *testing.T) {
	parent, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(parent, "cpuset.cpus"), "0-3\n")
	write(t, filepath.Join(parent, "cpuset.mems"), "0\n")
	write(t, filepath.Join(dir, "cpuset.cpus"), "1\n")
	write(t, filepath.Join(dir, "cpuset.mems"), "\n")
	if err := inheritCpuset(parent, dir); err != nil {
		t.Fatal(err)
	}
	got := []string{read(t, filepath.Join(dir, "cpuset.cpus")), read(t, filepath.Join(dir, "cpuset.mems"))}
	if diff := cmp.Diff([]string{"1", "0"}, got); diff != "" {
		t.Errorf("what is set stays, what is empty is copied (-want +got)\n%s", diff)
	}
	if err := inheritCpuset(parent, t.TempDir()); err != nil {
		t.Errorf("a hierarchy without cpusets: %v", err)
	}
}

// TestProcesses plays a hierarchy with plain files.
func TestProcesses(t *testing.T) {
	root := t.TempDir()
	l := Layout{Hierarchies: []Hierarchy{{Mount: filepath.Join(root, "pids"), Controllers: "pids"}, {Mount: filepath.Join(root, "unified")}}}
	write(t, filepath.Join(root, "pids/s/cgroup.procs"), "")
	write(t, filepath.Join(root, "pids/s/n/cgroup.procs"), "12\n3\n")
	write(t, filepath.Join(root, "pids/s/n/pods/x/cgroup.procs"), "7\n")
	write(t, filepath.Join(root, "pids/other/cgroup.procs"), "99\n")
	write(t, filepath.Join(root, "unified/s/n/cgroup.procs"), "0\n3\n12\n40\n")
	got, err := l.Processes("s")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{3, 7, 12, 40}, got); diff != "" {
		t.Errorf("every process once, of every hierarchy, none from outside (-want +got)\n%s", diff)
	}
	if got, err := l.Processes("nobody"); err != nil || len(got) != 0 {
		t.Errorf("a group that is not there has %v, %v", got, err)
	}
}

func TestRemove(t *testing.T) {
	root := t.TempDir()
	l := Layout{Hierarchies: []Hierarchy{{Mount: root}}}
	if err := os.MkdirAll(filepath.Join(root, "s/n/pods/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Remove(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "s")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the group is left: %v", err)
		}
	}
	write(t, filepath.Join(root, "s/busy"), "a folder with a file stands for a cgroup that is still in use")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Remove(ctx, "s"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "remove cgroup s") {
		t.Errorf("a cgroup in use: %v, want the end of the context", err)
	}
}
