package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hierarchy is one mounted cgroup hierarchy.
type Hierarchy struct {
	// Mount is where the machine has it, such as /sys/fs/cgroup/cpu,cpuacct.
	Mount string `json:"mount"`
	// Controllers names what a v1 hierarchy controls, as mount(2) takes it:
	// "cpu,cpuacct", or "none,name=systemd" for one without a controller.
	// It is empty for v2.
	Controllers string `json:"controllers,omitempty"`
}

// V2 says whether it is the unified hierarchy.
func (h Hierarchy) V2() bool { return h.Controllers == "" }

// Layout is how the machine has its cgroups mounted.
type Layout struct {
	Hierarchies []Hierarchy `json:"hierarchies"`
}

// Pure2 says whether v2 is the only hierarchy: then it has the controllers.
// In hybrid mode the v1 hierarchies have them and v2 only tracks processes.
func (l Layout) Pure2() bool {
	return len(l.Hierarchies) == 1 && l.Hierarchies[0].V2()
}

// Detect reads the machine's layout from this process's mounts.
func Detect() (Layout, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Layout{}, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close()
	return parse(f)
}

// parse finds the cgroup hierarchies in a mountinfo table (proc(5)). The same
// hierarchy may be mounted twice; the first mount of its root counts.
func parse(mountinfo io.Reader) (Layout, error) {
	var l Layout
	seen := map[string]bool{}
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		device, h, ok := parseLine(lines.Text())
		if !ok || seen[device] {
			continue
		}
		seen[device] = true
		l.Hierarchies = append(l.Hierarchies, h)
	}
	if err := lines.Err(); err != nil {
		return Layout{}, fmt.Errorf("read mountinfo: %w", err)
	}
	if len(l.Hierarchies) == 0 {
		return Layout{}, errors.New("no cgroup hierarchy is mounted below /sys/fs/cgroup: mount cgroup2 there")
	}
	return l, nil
}

// parseLine reads one line of mountinfo:
//
//	36 31 0:33 / /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices
func parseLine(line string) (device string, h Hierarchy, ok bool) {
	left, right, found := strings.Cut(line, " - ")
	before, after := strings.Fields(left), strings.Fields(right)
	if !found || len(before) < 5 || len(after) < 3 || before[3] != "/" {
		return "", Hierarchy{}, false
	}
	switch after[0] {
	case "cgroup2":
		return before[2], Hierarchy{Mount: before[4]}, true
	case "cgroup":
		return before[2], Hierarchy{Mount: before[4], Controllers: controllers(after[2])}, true
	}
	return "", Hierarchy{}, false
}

// controllers picks the controllers out of a v1 hierarchy's super options.
func controllers(options string) string {
	notControllers := []string{"rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"}
	var out []string
	named := false
	for o := range strings.SplitSeq(options, ",") {
		switch {
		case slices.Contains(notControllers, o), strings.HasPrefix(o, "release_agent="):
		case strings.HasPrefix(o, "name="):
			named = true
			out = append(out, o)
		default:
			out = append(out, o)
		}
	}
	if named && len(out) == 1 {
		out = []string{"none", out[0]}
	}
	return strings.Join(out, ",")
}

// Folders lists the folder of one group in every hierarchy.
func (l Layout) Folders(group string) []string {
	var out []string
	for _, h := range l.Hierarchies {
		out = append(out, filepath.Join(h.Mount, group))
	}
	return out
}

// V2Folder is the folder of one group in cgroup v2's hierarchy; false where the
// machine has none.
func (l Layout) V2Folder(group string) (string, bool) {
	for _, h := range l.Hierarchies {
		if h.V2() {
			return filepath.Join(h.Mount, group), true
		}
	}
	return "", false
}

// Mount is one mount that shows a node the cgroups from its own namespace.
type Mount struct {
	Target string // absolute, below /sys/fs/cgroup
	Type   string // cgroup or cgroup2
	Data   string
	// Links are names beside the target that lead to it: with "cpu,cpuacct"
	// programs look for "cpu" and for "cpuacct".
	Links []string
}

// NodeMounts lists what to mount in a node's /sys/fs/cgroup. In v2 that folder
// is itself the hierarchy; else it is a tmpfs (not listed) that holds them.
func (l Layout) NodeMounts() []Mount {
	const base = "/sys/fs/cgroup"
	if l.Pure2() {
		return []Mount{{Target: base, Type: "cgroup2"}}
	}
	var out []Mount
	for _, h := range l.Hierarchies {
		m := Mount{Target: filepath.Join(base, filepath.Base(h.Mount)), Type: "cgroup", Data: h.Controllers}
		if h.V2() {
			m.Type = "cgroup2"
			m.Target = filepath.Join(base, "unified")
		}
		if parts := strings.Split(h.Controllers, ","); len(parts) > 1 && parts[0] != "none" {
			for _, p := range parts {
				m.Links = append(m.Links, filepath.Join(base, p))
			}
		}
		out = append(out, m)
	}
	return out
}
