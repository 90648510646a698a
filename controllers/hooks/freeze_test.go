package hooks

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

var errDown = errors.New("the node does not answer")

// play is a world in which a freeze is carried out: what is stored in it, and
// what was done in which order.
type play struct {
	now    time.Time
	record *Record // nil: there is none
	copies map[string]string
	did    []string

	ends    func(c Command) error // how a command ends
	takes   func(c Command) time.Duration
	cut     func(name string) bool // within the time that is waited
	refuses func(name string) bool
	loses   func(name string) bool // the answer that a copy was made
	writes  error                  // of the record
	written bool                   // the record is stored all the same
	marking func() error
	undone  map[string]time.Time // by Pod, when its last hook of after was begun
}

// do carries a step out.
func (p *play) do(f *freezing, s step) outcome {
	switch s.kind {
	case record:
		if p.writes == nil || p.written {
			p.record = &Record{Copies: f.freeze.Copies, After: f.freeze.After}
		}
		return outcome{err: p.writes}
	case run:
		p.did = append(p.did, s.command.Hook+" "+s.command.Pod)
		if p.takes != nil {
			p.now = p.now.Add(min(p.takes(s.command), s.within))
		}
		return outcome{err: p.ends(s.command)}
	case undoAll:
		began, ended, ends := p.now, p.now, map[int]error{}
		for _, pod := range s.undo { // at once
			p.now = began
			for _, i := range pod {
				c := f.left[i].command
				p.did = append(p.did, c.Hook+" "+c.Pod)
				if p.undone == nil {
					p.undone = map[string]time.Time{}
				}
				p.undone[c.Pod] = p.now
				if p.takes != nil {
					p.now = p.now.Add(min(p.takes(c), c.timeout()))
				}
				ends[i] = p.ends(c)
			}
			if p.now.After(ended) {
				ended = p.now
			}
		}
		p.now = ended
		return outcome{undone: ends}
	case create:
		var made []string
		for _, name := range f.freeze.Copies {
			if !p.refuses(name) {
				p.copies[name] = v1alpha1.QuiescedPending
				if !p.loses(name) {
					made = append(made, name)
				}
			}
		}
		p.did = append(p.did, "create")
		return outcome{made: made}
	case await:
		var cut []string
		for _, name := range s.copies {
			if p.copies[name] != "" && p.cut(name) {
				cut = append(cut, name)
			}
		}
		if len(cut) < len(s.copies) {
			p.now = p.now.Add(max(s.within, 0))
		}
		return outcome{cut: cut}
	case mark:
		if err := p.marking(); err != nil {
			return outcome{err: err}
		}
		for name, value := range s.marks {
			if p.copies[name] == v1alpha1.QuiescedPending {
				p.copies[name] = value
			}
		}
	case erase:
		p.record = nil
	case pause:
		p.now = p.now.Add(s.within)
	}
	return outcome{}
}

// carry carries a freeze out, for at most so many steps.
func (p *play) carry(t *testing.T, f *freezing, steps int) (ended bool) {
	t.Helper()
	for range steps {
		s := f.step(p.now)
		if s.kind == over {
			return true
		}
		if (s.kind == run || s.kind == undoAll) && p.record == nil {
			t.Fatalf("%s runs while nothing is written down of what to undo", s.command)
		}
		f.saw(p.now, p.do(f, s))
	}
	return f.at == over
}

func newPlay() *play {
	return &play{
		now: time.Unix(0, 0), copies: map[string]string{}, ends: func(Command) error { return nil }, cut: func(string) bool { return true },
		refuses: func(string) bool { return false }, loses: func(string) bool { return false }, marking: func() error { return nil },
	}
}

func in(hook, pod string) Command {
	return Command{Hook: hook, Pod: pod, PodUID: types.UID(pod), Argv: []string{"x"}, TimeoutSeconds: 10}
}

// two is a freeze of two Pods.
func two() Freeze {
	return Freeze{
		Copies: []string{"a", "b"}, MaxFreeze: 30 * time.Second,
		Before: []Before{{Command: in("before[0]", "p")}, {Command: in("before[0]", "q")}, {Command: in("before[1]", "p"), Continue: true}},
		After:  []Command{in("after[0]", "p"), in("after[1]", "p"), in("after[0]", "q")},
	}
}

func TestFreeze(t *testing.T) {
	const all = "before[0] p, before[0] q, before[1] p, create, after[0] p, after[1] p, after[0] q"
	when := func(hook, pod string, err error) func(Command) error {
		return func(c Command) error {
			if c.Hook == hook && c.Pod == pod {
				return err
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		why    string
		freeze func(*Freeze)
		world  func(*play)
		did    string
		marks  string // of a and b; empty: no copy
		failed string
		flaw   string
		notes  int
	}{
		"good":          {why: "each once, in order", did: all, marks: "Yes Yes"},
		"no record":     {why: "nothing is begun that could not be undone", world: func(p *play) { p.writes = errDown }, failed: "cannot be written down"},
		"a lost answer": {why: "a record that was stored all the same is not left behind", world: func(p *play) { p.writes, p.written = errDown, true }, failed: "cannot be written down"},
		"first fails":   {why: "a Pod in which nothing was begun is left alone", world: func(p *play) { p.ends = when("before[0]", "p", ErrRan) }, did: "before[0] p, after[0] p, after[1] p", failed: "hook before[0] in container", notes: 1},
		"second fails":  {why: "what ran is undone, what failed too", world: func(p *play) { p.ends = when("before[0]", "q", errDown) }, did: "before[0] p, before[0] q, after[0] p, after[1] p, after[0] q", failed: "the node does not answer", notes: 1},
		"not heeded":    {why: "the copies are made and say so", world: func(p *play) { p.ends = when("before[1]", "p", ErrRan) }, did: all, marks: "No No", flaw: "before[1]", notes: 1},
		"nowhere": {why: "a selector that picks nothing is a failure", freeze: func(f *Freeze) {
			f.Before[1] = Before{Command: Command{Hook: "before[0]"}, Cannot: "its podSelector matches no running Pod"}
		}, did: "before[0] p, after[0] p, after[1] p", failed: "matches no running Pod", notes: 1},
		"one is late":     {why: "what was cut in time is quiesced", world: func(p *play) { p.cut = func(name string) bool { return name == "b" } }, did: all, marks: "No Yes", flaw: "maxFreezeSeconds (30)"},
		"all are late":    {why: "the Pods are let go all the same", world: func(p *play) { p.cut = func(string) bool { return false } }, did: all, marks: "No No", flaw: "maxFreezeSeconds (30)"},
		"one is refused":  {why: "it stops no other", world: func(p *play) { p.refuses = func(name string) bool { return name == "a" } }, did: all, marks: " Yes"},
		"answer is lost":  {why: "nobody knows when it was cut, and it is not left as Pending", world: func(p *play) { p.loses = func(name string) bool { return name == "a" } }, did: all, marks: "No Yes"},
		"all are refused": {why: "there is nothing to wait for", world: func(p *play) { p.refuses = func(string) bool { return true } }, did: all},
		"too slow": {why: "no hook begins after the time", world: func(p *play) { p.takes = func(Command) time.Duration { return 9 * time.Second } },
			freeze: func(f *Freeze) { f.MaxFreeze = 15 * time.Second; f.Before[2].Continue = false }, did: "before[0] p, before[0] q, after[0] p, after[1] p, after[0] q", failed: "maxFreezeSeconds (15) had passed", notes: 1},
		"after fails": {why: "it is run some times, then told and given up", world: func(p *play) { p.ends = when("after[0]", "p", ErrRan) },
			did: all + ", after[0] p, after[0] p, after[0] p, after[0] p", marks: "Yes Yes", notes: 1},
		"pod goes": {why: "there is nothing to undo in it", world: func(p *play) { p.ends = when("after[1]", "p", ErrGone) }, did: all, marks: "Yes Yes"},
	} {
		t.Run(name, func(t *testing.T) {
			freeze, p := two(), newPlay()
			if tc.freeze != nil {
				tc.freeze(&freeze)
			}
			if tc.world != nil {
				tc.world(p)
			}
			f := begin(freeze)
			if !p.carry(t, f, 100) {
				t.Fatalf("%s: it does not end; did %v", tc.why, p.did)
			}
			if got := strings.Join(p.did, ", "); got != tc.did {
				t.Errorf("%s: did %s\nwant %s", tc.why, got, tc.did)
			}
			marks := p.copies["a"] + " " + p.copies["b"]
			if marks != tc.marks && (tc.marks != "" || len(p.copies) > 0) {
				t.Errorf("%s: marked %q, want %q", tc.why, marks, tc.marks)
			}
			if (f.failed == "") != (tc.failed == "") || !strings.Contains(f.failed, tc.failed) || (f.flaw == "") != (tc.flaw == "") || !strings.Contains(f.flaw, tc.flaw) || len(f.notes) != tc.notes {
				t.Errorf("%s: failed %q, flaw %q, notes %v; want %q, %q, %d", tc.why, f.failed, f.flaw, f.notes, tc.failed, tc.flaw, tc.notes)
			}
			if p.record != nil {
				t.Errorf("%s: the record is left", tc.why)
			}
			if frozen := p.now.Sub(time.Unix(0, 0)); tc.flaw == "" && tc.notes == 0 && frozen > 0 {
				t.Errorf("%s: the Pods are frozen for %v, and nothing takes time", tc.why, frozen)
			}
		})
	}
}

// TestCreationIsBounded: an API server that does not answer keeps no Pod frozen.
func TestCreationIsBounded(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 12 * time.Second: 18 * time.Second, 40 * time.Second: leastCreate} {
		p, f := newPlay(), begin(two())
		for f.at != create {
			f.saw(p.now, p.do(f, f.step(p.now)))
		}
		if s := f.step(p.now.Add(took)); s.kind != create || s.within != want {
			t.Errorf("after %v of 30 s the copies are asked for within %v, want %v", took, s.within, want)
		}
	}
}

// TestUnreachableIsTriedOn: a Pod that cannot be reached is undone whenever it can.
func TestUnreachableIsTriedOn(t *testing.T) {
	p, tries := newPlay(), 0
	p.ends = func(c Command) error {
		if c.Hook == "after[0]" && c.Pod == "q" {
			if tries++; tries < 200 {
				return errDown
			}
		}
		return nil
	}
	f := begin(two())
	if !p.carry(t, f, 1000) || tries != 200 || len(f.notes) != 1 {
		t.Errorf("tried %d times, told %v", tries, f.notes)
	}
	if p.now.Sub(time.Unix(0, 0)) < 3*time.Hour {
		t.Errorf("200 tries took %v: that is a hot loop", p.now.Sub(time.Unix(0, 0)))
	}
}

// TestAPodThatHangsFreezesNoOther: the Pods are let go at once, so one whose node is
// dead does not keep the others frozen for as long as its hooks are waited for.
func TestAPodThatHangsFreezesNoOther(t *testing.T) {
	p := newPlay()
	p.takes = func(c Command) time.Duration {
		if c.Pod == "p" && strings.HasPrefix(c.Hook, "after") {
			return time.Hour
		}
		return 0
	}
	p.ends = func(c Command) error {
		if c.Pod == "p" && strings.HasPrefix(c.Hook, "after") && p.now.Before(time.Unix(60, 0)) {
			return errDown
		}
		return nil
	}
	f := begin(two())
	if !p.carry(t, f, 100) {
		t.Fatal("it does not end")
	}
	if frozen := p.undone["q"].Sub(time.Unix(0, 0)); frozen != 0 {
		t.Errorf("Pod q is frozen for %v, which Pod p takes to answer: did %s", frozen, strings.Join(p.did, ", "))
	}
}

// TestUndoneWhateverHappens plays random freezes with random ends of each command
// and a crash of the manager at any step, seen or unseen, and again. In each:
// after runs for each before.
func TestUndoneWhateverHappens(t *testing.T) {
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 1))
		freeze, p := randomFreeze(random), newPlay()
		gone := map[string]bool{}
		p.ends = func(c Command) error {
			switch random.IntN(8) {
			case 0:
				return ErrRan
			case 1:
				return errDown
			case 2:
				gone[c.Pod] = gone[c.Pod] || random.IntN(4) == 0
			}
			if gone[c.Pod] {
				return ErrGone
			}
			return nil
		}
		p.takes = func(Command) time.Duration { return time.Duration(random.IntN(12)) * time.Second }
		p.cut = func(string) bool { return random.IntN(4) > 0 }
		p.refuses = func(string) bool { return random.IntN(6) == 0 }
		p.loses = func(string) bool { return random.IntN(6) == 0 }
		p.marking = func() error {
			if random.IntN(5) == 0 {
				return errDown
			}
			return nil
		}
		f := begin(freeze)
		for !p.carry(t, f, random.IntN(30)) {
			if s := f.step(p.now); s.kind != over && random.IntN(2) == 0 && (s.kind != run && s.kind != undoAll || p.record != nil) {
				p.do(f, s) // done, and never seen
			}
			p.did = append(p.did, "crash")
			if p.record == nil {
				break
			}
			f = takeUp(p.record.After, p.record.Copies)
		}
		if problem := p.problem(freeze, gone); problem != "" {
			t.Fatalf("seed %d: %s; did %s; copies %v", seed, problem, strings.Join(p.did, ", "), p.copies)
		}
	}
}

// problem is what the world must not look like in the end.
func (p *play) problem(freeze Freeze, gone map[string]bool) string {
	if p.record != nil {
		return "the record is left"
	}
	for _, value := range slices.Collect(maps.Values(p.copies)) {
		if value == v1alpha1.QuiescedPending {
			return "a copy is not marked"
		}
	}
	firstAfter := slices.IndexFunc(p.did, func(s string) bool { return strings.HasPrefix(s, "after") })
	crashed := slices.Contains(p.did, "crash")
	created := slices.Index(p.did, "create")
	for i, did := range p.did {
		hook, pod, isHook := strings.Cut(did, " ")
		if !isHook || !strings.HasPrefix(hook, "before") {
			continue
		}
		if firstAfter >= 0 && i > firstAfter || created >= 0 && i > created {
			return "a hook of before runs too late"
		}
		for _, c := range freeze.After {
			if c.Pod == pod && !gone[pod] && !slices.Contains(p.did[i:], c.Hook+" "+pod) {
				return fmt.Sprintf("%s is not run in %s", c.Hook, pod)
			}
		}
	}
	if quiesced := slices.Contains(slices.Collect(maps.Values(p.copies)), v1alpha1.Quiesced); quiesced && firstAfter >= 0 && created > firstAfter {
		return "a copy that was asked for after undo began passes for quiesced"
	} else if quiesced && crashed && created > slices.Index(p.did, "crash") {
		return "a copy of a dead manager passes for quiesced"
	}
	return ""
}

func randomFreeze(random *rand.Rand) Freeze {
	freeze := Freeze{MaxFreeze: time.Duration(1+random.IntN(40)) * time.Second}
	pods := []string{"p", "q", "r"}[:1+random.IntN(3)]
	for i := range 1 + random.IntN(3) {
		for _, pod := range pods {
			b := Before{Command: in(fmt.Sprintf("before[%d]", i), pod), Continue: random.IntN(2) == 0}
			if random.IntN(8) == 0 {
				b = Before{Command: Command{Hook: b.Hook}, Cannot: "nowhere", Continue: b.Continue}
			}
			freeze.Before = append(freeze.Before, b)
		}
	}
	for _, pod := range pods {
		for i := range random.IntN(3) {
			freeze.After = append(freeze.After, in(fmt.Sprintf("after[%d]", i), pod))
		}
	}
	for i := range 1 + random.IntN(4) {
		freeze.Copies = append(freeze.Copies, fmt.Sprint("copy", i))
	}
	return freeze
}

// TestNotesAreCut: at a whole character, or the event would be refused.
func TestNotesAreCut(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("a", 3000), "a" + strings.Repeat("ü", 2000), strings.Repeat("雪", 2000)} {
		got := cut(text)
		if len(got) > maxNote || !utf8.ValidString(got) || !strings.HasPrefix(text, got) || len(got) < min(len(text), maxNote-3) {
			t.Errorf("%.10q of %d bytes is cut to %d bytes: valid %t", text, len(text), len(got), utf8.ValidString(got))
		}
	}
}

// TestWhatFreezesLateIsThawed: a hook of before that is not waited for any longer
// goes on in its container, and may freeze what a hook of after has just found to
// be thawed.
func TestWhatFreezesLateIsThawed(t *testing.T) {
	for name, tc := range map[string]struct {
		before error
		late   time.Duration // how long after its time it freezes; 0: never
		thawed bool
		runs   int
	}{
		"ran":             {before: ErrRan, runs: maxRuns},
		"freezes late":    {before: fmt.Errorf("it took longer than 10s, and %w", ErrMayRun), late: 2 * time.Minute, thawed: true, runs: 8},
		"never freezes":   {before: fmt.Errorf("it took longer than 10s, and %w", ErrMayRun), runs: blocking + 1},
		"is not answered": {before: errDown, runs: maxRuns},
	} {
		p, began, thawed := newPlay(), time.Time{}, false
		p.ends = func(c Command) error {
			switch {
			case strings.HasPrefix(c.Hook, "before"):
				began = p.now
				return tc.before
			case tc.late > 0 && p.now.Sub(began) >= tc.late && c.Pod == "p":
				thawed = true
				return nil
			}
			return ErrRan // it is not frozen
		}
		f := begin(Freeze{Copies: []string{"a"}, MaxFreeze: 30 * time.Second, Before: []Before{{Command: in("before[0]", "p")}}, After: []Command{in("after[0]", "p")}})
		if !p.carry(t, f, 200) {
			t.Fatalf("%s: it does not end", name)
		}
		if runs := len(p.did) - 1; thawed != tc.thawed || runs != tc.runs {
			t.Errorf("%s: thawed %t after %d runs, want %t after %d", name, thawed, runs, tc.thawed, tc.runs)
		}
	}
}
