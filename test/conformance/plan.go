package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// manifest is a file that defines specs, and those of them that are meant.
type manifest struct {
	file string
	// specs matches the names (without prefix) that the manifest is there for.
	specs *regexp.Regexp
}

// manifests are what the suite is told of the driver, in the folder manifests.
var manifests = []manifest{
	{"ebs.yaml", regexp.MustCompile(`^\[Testpattern: `)},
	// Volumes of many writers are raw block only.
	{"multi-attach.yaml", regexp.MustCompile(`^\[io2 multi-attach\] \[Testpattern: Dynamic PV \(block volmode\)`)},
	{"immediate.yaml", regexp.MustCompile(`^\[immediate binding\] .*\] volume-modify-stress `)},
	{"groups.yaml", regexp.MustCompile(`^\[one instance\] .*\] volumegroupsnapshot`)},
}

// reasons say why specs do not run.
type reasons struct {
	LeftOut []leftOut   `json:"leftOut"`
	Skipped []explained `json:"skipped"`
}

// leftOut are specs that are not started.
type leftOut struct {
	// Specs matches their names.
	Specs pattern `json:"specs"`
	// Without is the capability (see capabilities(7)) without which a machine
	// cannot run them; empty: no sandbox can.
	Without string `json:"without,omitempty"`
	Reason  string `json:"reason"`
}

// explained are specs that skip themselves.
type explained struct {
	// Says matches what they say.
	Says   pattern `json:"says"`
	Reason string  `json:"reason"`
}

// pattern is a regular expression in a file.
type pattern struct{ *regexp.Regexp }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *pattern) UnmarshalText(text []byte) (err error) {
	p.Regexp, err = regexp.Compile(string(text))
	return err
}

// plan is what a run has to do.
type plan struct {
	// listed are the specs of specs.txt.
	listed  []string
	reasons reasons
	// focus matches the specs that this run is about; nil: all. Then specs.txt and
	// reasons.yaml are not held to what ran.
	focus *regexp.Regexp
	// without matches the specs that this run is not about; nil: none.
	without *regexp.Regexp
	// lacks says which capabilities this machine does not have.
	lacks func(capability string) bool
}

// halves are the parts of the suite that can be run, and what they are without.
// The specs that Kubernetes calls slow, and those that have to be alone on the
// cluster, take most of the time.
var halves = map[string]*regexp.Regexp{
	"all":   nil,
	"quick": regexp.MustCompile(`\[(Slow|Serial)\]`),
}

// readPlan reads specs.txt and reasons.yaml in a folder. focus may be empty.
func readPlan(dir, half, focus string) (*plan, error) {
	without, known := halves[half]
	if !known {
		return nil, fmt.Errorf("there is no half %q of the suite: choose %s", half, strings.Join(slices.Sorted(maps.Keys(halves)), " or "))
	}
	p := &plan{without: without, lacks: lacksCapability}
	if focus != "" {
		re, err := regexp.Compile(focus)
		if err != nil {
			return nil, fmt.Errorf("focus: %w", err)
		}
		p.focus = re
	}
	raw, err := os.ReadFile(filepath.Join(dir, "specs.txt"))
	if err != nil {
		return nil, fmt.Errorf("list of specs: %w", err)
	}
	if p.listed, err = readList(string(raw)); err != nil {
		return nil, err
	}
	raw, err = os.ReadFile(filepath.Join(dir, "reasons.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reasons: %w", err)
	}
	if err := yaml.UnmarshalStrict(raw, &p.reasons); err != nil {
		return nil, fmt.Errorf("reasons.yaml: %w", err)
	}
	return p, p.check()
}

// readList reads names, one a line; a line that begins with # says something else.
func readList(text string) ([]string, error) {
	var names []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		return nil, fmt.Errorf("specs.txt is not sorted, or names a spec twice: sort it (LC_ALL=C sort -u)")
	}
	return names, nil
}

// writeList writes specs.txt: the specs that ran, and those of the list that this
// run was not about.
func writeList(path string, p *plan, v verdict) error {
	names := slices.Clone(v.ran)
	for _, name := range p.listed {
		if !p.meant(name) || p.leftOut(name) >= 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	text := listHeader + strings.Join(slices.Compact(names), "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("list of specs: %w", err)
	}
	return nil
}

// listHeader begins specs.txt.
const listHeader = `# The specs of Kubernetes' external-storage suite that run, one a line, without
# "` + prefix + `" before each.
# A run is held to them both ways (docs/conformance.md).
`

// check refuses reasons that say nothing.
func (p *plan) check() error {
	for _, r := range p.reasons.LeftOut {
		if r.Specs.Regexp == nil || r.Reason == "" {
			return fmt.Errorf("reasons.yaml: an entry of leftOut has specs %v and reason %q: want both", r.Specs, r.Reason)
		}
		if _, known := capabilities[r.Without]; r.Without != "" && !known {
			return fmt.Errorf("reasons.yaml: %v is left out without %q: known is %s", r.Specs, r.Without, strings.Join(slices.Sorted(maps.Keys(capabilities)), ", "))
		}
	}
	for _, r := range p.reasons.Skipped {
		if r.Says.Regexp == nil || r.Reason == "" {
			return fmt.Errorf("reasons.yaml: an entry of skipped has says %v and reason %q: want both", r.Says, r.Reason)
		}
	}
	return nil
}

// meant says whether a manifest is there for the spec, and this run about it.
func (p *plan) meant(name string) bool {
	if p.focus != nil && !p.focus.MatchString(name) {
		return false
	}
	for _, m := range manifests {
		if m.specs.MatchString(name) {
			return p.without == nil || !p.without.MatchString(name)
		}
	}
	return false
}

// whole says whether the run is about all there is.
func (p *plan) whole() bool { return p.focus == nil && p.without == nil }

// expected are the specs of specs.txt that have to run.
func (p *plan) expected() []string {
	return slices.DeleteFunc(slices.Clone(p.listed), func(name string) bool { return !p.meant(name) || p.leftOut(name) >= 0 })
}

// leftOut is the number of the entry of LeftOut by which the spec is not started
// on this machine, or -1.
func (p *plan) leftOut(name string) int {
	for i, r := range p.reasons.LeftOut {
		if r.Specs.MatchString(name) && (r.Without == "" || p.lacks(r.Without)) {
			return i
		}
	}
	return -1
}

// selection is what of the defined specs has to be started.
func (p *plan) selection(defined []spec) []string {
	var names []string
	for _, s := range defined {
		if p.meant(s.name) && p.leftOut(s.name) < 0 {
			names = append(names, s.name)
		}
	}
	return names
}

// capabilities are those that specs can do without, and their numbers.
var capabilities = map[string]uintptr{"CAP_SYS_RESOURCE": unix.CAP_SYS_RESOURCE}

// lacksCapability says whether this process, and so all that it starts, is without
// the capability of that name.
func lacksCapability(name string) bool {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capabilities[name], 0, 0, 0)
	return err == nil && has == 0
}
