package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/sandbox/cgroup"
	"github.com/holdfast-dev/holdfast/internal/sandbox/initd"
)

// Flags tells the command line which sandbox is meant: its name, and its folder
// where that is not the default one. An empty folder is the default.
func Flags(name, dir string) string {
	if dir == "" || dir == filepath.Join(DefaultParent, name) {
		return "--name " + name
	}
	return "--name " + name + " --dir " + dir
}

// traces tell whose a folder is, and where the sandbox of a name lives. A take-down
// kills by name and deletes by folder; they must be those of one sandbox.
type traces struct {
	// home is the folder that the sandbox of the name runs from; empty if it does
	// not run. What is left of one whose first process has ended is about to end.
	home string
	// isHome says that home is the folder in question.
	isHome bool
	// recorded is the name in the folder's record; empty if there is none, or it
	// cannot be read.
	recorded string
	// stranger says that the first process of a sandbox of another name answers
	// in the folder. It is looked for only if the others do not tell.
	stranger bool
}

// look finds the traces. It needs none of them to be there.
func look(ctx context.Context, layout cgroup.Layout, name, dir string) (traces, error) {
	home, err := homeOf(layout, name)
	if err != nil {
		return traces{}, err
	}
	t := traces{home: home, isHome: home != "" && sameFolder(home, dir)}
	if r, err := loadRecord(dir); err == nil {
		t.recorded = r.Name
	}
	if t.home == "" && t.recorded == "" {
		// Whoever answers now was alive at the look at home, and would be there if
		// the name were its own.
		t.stranger = topAnswers(ctx, dir)
	}
	return t, nil
}

// answerLimit is long for an init that lives: it answers at once.
const answerLimit = 5 * time.Second

// topAnswers says whether a first process works in the folder. That its socket
// takes connections is not enough: one that was killed may keep it for a while.
func topAnswers(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_, err := initd.Client{Socket: paths{dir}.socket(topName)}.Do(ctx, initd.Request{Op: "list"})
	return err == nil
}

// check refuses a name and a folder of two sandboxes. A sandbox that is gone, or
// partly so, has no traces or some of them: that is no reason to refuse.
func (t traces) check(name, dir string) error {
	switch {
	case t.home != "" && !t.isHome:
		return fmt.Errorf("sandbox %s runs from folder %s, not %s, and was left alone: end it with `sandbox down %s`",
			name, t.home, dir, Flags(name, t.home))
	case t.recorded != "" && t.recorded != name:
		return fmt.Errorf("folder %s is that of sandbox %s, not %s, and was left alone: end it with `sandbox down %s`",
			dir, t.recorded, name, Flags(t.recorded, dir))
	case t.stranger:
		return fmt.Errorf("another sandbox than %s runs from folder %s, and was left alone: end it with `sandbox down` and its own name",
			name, dir)
	}
	return nil
}

// homeOf is the folder of the running sandbox of that name, as the command line of
// its first process has it; empty if none runs. No other file needs to be there.
func homeOf(layout cgroup.Layout, name string) (string, error) {
	pids, err := layout.Processes(filepath.Join(cgroupOf(name), topName))
	if err != nil {
		return "", err
	}
	for _, pid := range pids {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		if dir, ok := homeIn(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")); ok {
			return dir, nil
		}
	}
	return "", nil
}

// homeIn reads the command line that startTop gives to top:
// <folder>/bin/sandbox init <folder>/run/top.json.
func homeIn(argv []string) (string, bool) {
	if len(argv) != 3 || argv[1] != "init" {
		return "", false
	}
	dir := filepath.Dir(filepath.Dir(argv[2]))
	p := paths{dir}
	return dir, argv[0] == p.own("sandbox") && argv[2] == p.spec(topName)
}

// sameFolder also knows a folder by another path, while it is there.
func sameFolder(a, b string) bool {
	if a == b {
		return true
	}
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}
