package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	writes = "[Testpattern: Dynamic PV (default fs)] volumes should store data"
	grows  = "[Testpattern: Dynamic PV (default fs)] volume-expand should grow [Slow]"
	kills  = "[Testpattern: Dynamic PV (default fs)] subPath should survive [Disruptive]"
	inline = "[io2 multi-attach] [Testpattern: Dynamic PV (default fs)] volumes should store data"
)

// testPlan lists two specs, leaves out what is disruptive and explains one skip.
func testPlan(t *testing.T, lacks bool) *plan {
	t.Helper()
	p := &plan{listed: []string{grows, writes}, lacks: func(string) bool { return lacks }}
	for _, r := range []struct{ specs, without string }{{`\[Disruptive\]`, ""}, {`should grow`, "CAP_SYS_RESOURCE"}} {
		p.reasons.LeftOut = append(p.reasons.LeftOut, leftOut{pattern{regexp.MustCompile(r.specs)}, r.without, "because"})
	}
	p.reasons.Skipped = append(p.reasons.Skipped, explained{pattern{regexp.MustCompile("does not support .* - skipping")}, "because"})
	return p
}

func TestJudge(t *testing.T) {
	says := spec{name: "[Testpattern: x] may skip", outcome: skipped, message: "does not support x - skipping"}
	usual := []spec{{name: writes, outcome: passed}, {name: grows, outcome: passed}, {name: kills}, {name: inline}, says}
	with := func(changed ...spec) []spec {
		out := append([]spec{}, usual...)
		for _, c := range changed {
			found := false
			for i := range out {
				if out[i].name == c.name {
					out[i], found = c, true
				}
			}
			if !found {
				out = append(out, c)
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		why      string
		specs    []spec
		lacks    bool
		without  string
		focus    string
		broken   []string
		sum      string
		problems []string // a part of each
	}{
		"as planned": {why: "what a manifest is not there for does not count", specs: usual,
			sum: "conformance: 2 passed, 0 failed, 2 skipped"},
		"failed": {why: "a spec that failed ran", specs: with(spec{name: writes, outcome: failed}),
			sum: "conformance: 1 passed, 1 failed, 2 skipped"},
		"gone": {why: "a spec that is not defined any more is missed", specs: usual[1:],
			sum: "conformance: 1 passed, 0 failed, 2 skipped", problems: []string{"store data\n    is in specs.txt and did not run"}},
		"new": {why: "a spec that ran and is not listed would not be missed later", specs: with(spec{name: "[Testpattern: y] is new", outcome: passed}),
			sum: "conformance: 3 passed, 0 failed, 2 skipped", problems: []string{"is new\n    ran, and specs.txt does not have it"}},
		"skipped itself, listed": {why: "a reason does not excuse a listed spec", specs: with(spec{name: writes, outcome: skipped, message: says.message}),
			sum: "conformance: 1 passed, 0 failed, 3 skipped", problems: []string{"store data\n    is in specs.txt and did not run"}},
		"skipped for a new reason": {why: "a skip needs a reason", specs: with(spec{name: "[Testpattern: y] z", outcome: skipped, message: "no SSH key"}),
			sum: "conformance: 2 passed, 0 failed, 3 skipped", problems: []string{"z\n    skipped itself, and reasons.yaml has no reason: no SSH key"}},
		"no turn": {why: "a run that was cut short is not green", specs: with(spec{name: writes}),
			sum: "conformance: 1 passed, 0 failed, 2 skipped", problems: []string{"store data\n    did not run: the suite ended before its turn"}},
		"without the capability": {why: "left out where the machine lacks what it needs", specs: with(spec{name: grows}), lacks: true,
			sum: "conformance: 1 passed, 0 failed, 3 skipped"},
		"with the capability": {why: "and only there", specs: with(spec{name: grows}),
			sum: "conformance: 1 passed, 0 failed, 2 skipped", problems: []string{"grow [Slow]\n    did not run"}},
		"reasons not needed": {why: "a reason that outlives its spec hides the next one", specs: usual[:2],
			sum: "conformance: 2 passed, 0 failed, 0 skipped", problems: []string{"leaves out \\[Disruptive\\], and there is no such spec", "explains does not support .* - skipping, which no spec said"}},
		"a half": {why: "the other half is not missed, nor are its reasons", specs: usual[:1], without: `\[Slow\]`,
			sum: "conformance: 1 passed, 0 failed, 0 skipped"},
		"one spec": {why: "nor is what was not asked for", specs: with(spec{name: grows}), focus: "store data",
			sum: "conformance: 1 passed, 0 failed, 0 skipped"},
		"the suite itself": {why: "a failure outside of specs is one", specs: usual, broken: []string{"SynchronizedBeforeSuite: no node is ready"},
			sum: "conformance: 2 passed, 0 failed, 2 skipped", problems: []string{"no node is ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan(t, tc.lacks)
			if tc.without != "" {
				p.without = regexp.MustCompile(tc.without)
			}
			if tc.focus != "" {
				p.focus = regexp.MustCompile(tc.focus)
			}
			v := judge(p, report{specs: tc.specs, broken: tc.broken})
			if v.sum() != tc.sum {
				t.Errorf("%s: %s; want %s", tc.why, v.sum(), tc.sum)
			}
			if len(v.problems) != len(tc.problems) {
				t.Fatalf("%s: problems %q; want %q", tc.why, v.problems, tc.problems)
			}
			for i, part := range tc.problems {
				if !strings.Contains(v.problems[i], part) {
					t.Errorf("%s: problem %q; want %q in it", tc.why, v.problems[i], part)
				}
			}
			if ok := v.failed == 0 && len(tc.problems) == 0; v.ok() != ok {
				t.Errorf("%s: ok is %t", tc.why, v.ok())
			}
		})
	}
}

func TestSelection(t *testing.T) {
	defined := []spec{{name: writes}, {name: grows}, {name: kills}, {name: inline}}
	for name, tc := range map[string]struct {
		why   string
		lacks bool
		half  *regexp.Regexp
		want  []string
	}{
		"all":                    {why: "what is meant, and not left out", want: []string{writes, grows}},
		"without the capability": {why: "what this machine can run", lacks: true, want: []string{writes}},
		"quick":                  {why: "what takes long is in the other half", half: halves["quick"], want: []string{writes}},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan(t, tc.lacks)
			p.without = tc.half
			if diff := cmp.Diff(tc.want, p.selection(defined)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestReadReport(t *testing.T) {
	const text = `[{"SpecReports":[
		{"LeafNodeType":"It","LeafNodeText":"works","ContainerHierarchyTexts":["External Storage [Driver: ebs.csi.aws.com] [Testpattern: a]","","b"],"State":"passed","RunTime":1500000000},
		{"LeafNodeType":"It","LeafNodeText":"times out","ContainerHierarchyTexts":["External Storage [Driver: ebs.csi.aws.com] [Testpattern: a]"],"State":"timedout","Failure":{"Message":"late"}},
		{"LeafNodeType":"It","LeafNodeText":"may skip","ContainerHierarchyTexts":["External Storage [Driver: ebs.csi.aws.com] [Testpattern: a]"],"State":"skipped","Failure":{"Message":"cannot"}},
		{"LeafNodeType":"It","LeafNodeText":"was not selected","ContainerHierarchyTexts":["External Storage [Driver: ebs.csi.aws.com] [Testpattern: a]"],"State":"skipped"},
		{"LeafNodeType":"It","LeafNodeText":"is of another driver","ContainerHierarchyTexts":["CSI mock volume"],"State":"skipped"},
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"failed","Failure":{"Message":"no node\nis ready"}},
		{"LeafNodeType":"ReportAfterSuite","State":"passed"}]}]`
	got, err := readReport(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := report{
		specs: []spec{
			{name: "[Testpattern: a] b works", outcome: passed, took: 1500000000},
			{name: "[Testpattern: a] times out", outcome: failed, message: "late"},
			{name: "[Testpattern: a] may skip", outcome: skipped, message: "cannot"},
			{name: "[Testpattern: a] was not selected"},
		},
		broken: []string{"SynchronizedBeforeSuite: no node"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(report{}, spec{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for name, text := range map[string]string{
		"a state of another version": `[{"SpecReports":[{"LeafNodeType":"It","State":"flaked"}]}]`,
		"no suite":                   `[]`,
		"cut short":                  `[{"SpecReports":[`,
	} {
		if _, err := readReport(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPlanIsRead: the files beside this one can be read, and leave nothing that is
// listed out for good.
func TestPlanIsRead(t *testing.T) {
	p, err := readPlan(".", "all", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.listed) == 0 {
		t.Error("specs.txt has no specs")
	}
	p.lacks = func(string) bool { return false }
	for _, name := range p.listed {
		if !p.meant(name) {
			t.Errorf("specs.txt has %q, which no manifest is there for", name)
		}
		if i := p.leftOut(name); i >= 0 {
			t.Errorf("specs.txt has %q, which reasons.yaml leaves out on every machine", name)
		}
	}
}

func TestBadFiles(t *testing.T) {
	for name, text := range map[string]string{"not sorted": "b\na\n", "twice": "# a\na\na\n"} {
		if _, err := readList(text); err == nil || !strings.Contains(err.Error(), "sort") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := readPlan(".", "slow", ""); err == nil || !strings.Contains(err.Error(), "choose all or quick") {
		t.Errorf("another half: %v", err)
	}
	if _, err := readPlan(".", "all", "("); err == nil {
		t.Error("a broken focus is accepted")
	}
	p := testPlan(t, false)
	p.reasons.LeftOut[0].Without = "CAP_ANYTHING"
	if err := p.check(); err == nil || !strings.Contains(err.Error(), "known is CAP_SYS_RESOURCE") {
		t.Errorf("another capability: %v", err)
	}
	p = testPlan(t, false)
	p.reasons.Skipped[0].Reason = ""
	if err := p.check(); err == nil {
		t.Error("a skip without a reason is accepted")
	}
}

// TestUpdate: the list takes in what ran, and keeps what this run was not about.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "specs.txt")
	p := testPlan(t, true) // grows cannot run here
	if err := writeList(path, p, verdict{ran: []string{"[Testpattern: z] new"}}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readList(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{grows, "[Testpattern: z] new"}, got); diff != "" {
		t.Errorf("%s did not run and was expected to; the other could not (-want +got)\n%s", writes, diff)
	}
}
