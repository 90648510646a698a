package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/loopdev"
)

// downLimit bounds a take-down whose context has no end: it takes about a second.
const downLimit = time.Minute

// Down ends the sandbox of that name, however far it was started and whatever of
// it still runs, and removes everything that is left of it. It may be called when
// there is none. It refuses a folder of another sandbox than the one of that name.
func Down(ctx context.Context, name string) error { return DownAt(ctx, name, "") }

// DownAt is Down for a sandbox with a folder of its own choice.
func DownAt(ctx context.Context, name, dir string) error {
	if name == "" {
		name = DefaultName
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf("sandbox name %q: use 1 to 32 of a-z, 0-9 and dashes inside", name)
	}
	if os.Geteuid() != 0 {
		return errors.New("taking a sandbox down needs root: run this with sudo")
	}
	dir, err := stateDir(name, dir)
	if err != nil {
		return err
	}
	return takeDown(ctx, name, dir, removeAll)
}

// leftovers says what a take-down removes of the folder.
type leftovers int

const (
	removeAll leftovers = iota
	// keepLogs is for a start that has failed: its reason is in the logs.
	keepLogs
)

// takeDown ends processes, frees loop devices and removes cgroups and files, in
// this order: a loop device is free only when nothing has it mounted, and a cgroup
// can go only when nothing is in it. It uses no state but the name and the folder.
func takeDown(ctx context.Context, name, dir string, what leftovers) error {
	layout, err := cgroup.Detect()
	if err != nil {
		return err
	}
	return takeDownIn(ctx, layout, name, dir, what)
}

// takeDownIn is takeDown on a machine with these cgroups.
func takeDownIn(ctx context.Context, layout cgroup.Layout, name, dir string, what leftovers) error {
	ctx, cancel := context.WithTimeout(ctx, downLimit)
	defer cancel()
	if err := isOurs(dir); err != nil {
		return err
	}
	seen, err := look(ctx, layout, name, dir)
	if err != nil {
		return err
	}
	if err := seen.check(name, dir); err != nil {
		return err
	}
	group := cgroupOf(name)
	if _, err := layout.Kill(ctx, group); err != nil {
		return err
	}
	if _, err := loopdev.Free(ctx, dir); err != nil {
		return err
	}
	if err := layout.Remove(ctx, group); err != nil {
		return err
	}
	return removeState(dir, what)
}

// removeState deletes the folder. It goes into no mount.
func removeState(dir string, what leftovers) error {
	if err := noMountBelow(dir); err != nil {
		return err
	}
	if what == keepLogs {
		return removeExcept(dir, filepath.Base(paths{dir}.logs()), filepath.Base(paths{dir}.record()))
	}
	// What shows that the folder is ours to delete goes last.
	if err := removeExcept(dir, filepath.Base(paths{dir}.record()), filepath.Base(paths{dir}.in("run"))); err != nil {
		return err
	}
	if err := removeExcept(dir, filepath.Base(paths{dir}.record())); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove folder %s: %w", dir, err)
	}
	if filepath.Dir(dir) == DefaultParent {
		_ = os.Remove(DefaultParent) // if it is empty
	}
	return nil
}

func removeExcept(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into folder %s: %w", dir, err)
	}
next:
	for _, e := range entries {
		for _, k := range keep {
			if e.Name() == k {
				continue next
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove folder %s: %w", dir, err)
		}
	}
	return nil
}

// noMountBelow refuses to delete through a mount. The sandbox makes none in the
// namespace of the machine, so it would be someone else's.
func noMountBelow(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if m := strings.Fields(lines.Text()); len(m) > 4 && strings.HasPrefix(m[4], dir+"/") {
			return fmt.Errorf("something is mounted on %s, inside the sandbox's folder: unmount it first", m[4])
		}
	}
	return lines.Err()
}
