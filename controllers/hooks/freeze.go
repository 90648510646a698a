package hooks

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// How a command ended that did not end well.
var (
	// ErrRan: it ran, and ended with another exit code than 0.
	ErrRan = errors.New("the command failed")
	// ErrMayRun: it was not waited for any longer, and nothing ends it.
	ErrMayRun = errors.New("may still run")
	// ErrGone: the Pod is gone, has ended, or is another of its name.
	ErrGone = errors.New("its Pod is gone")
)

const (
	// maxRuns is how often a hook of after is run that fails each time. It may
	// fail since there is nothing to undo, so it is not run for ever. Where one of
	// before may still run there may be something to undo later, and it is run in
	// each pass up to blocking.
	maxRuns = 5
	// firstWait doubles with every pass over what is left to undo, to longestWait.
	firstWait   = time.Second
	longestWait = time.Minute
	// leastCreate is how long the copies may be asked for where the hooks of before
	// took all the time there is.
	leastCreate = time.Second
)

// kind is what a step of a freeze does.
type kind int

// The steps of a freeze.
const (
	record kind = iota
	run
	create
	await
	mark
	erase
	pause
	over
	// undoAll runs hooks of after, in all Pods at once: one that hangs in a Pod
	// keeps no other frozen.
	undoAll
)

// step is what to do next.
type step struct {
	kind kind
	// command is what to run.
	command Command
	// undo are what to run of freezing.left, by Pod and there in order.
	undo [][]int
	// within bounds run, create and await, and is how long to wait.
	within time.Duration
	// copies are to be waited for.
	copies []string
	// lasting: it is done even while the manager stops.
	lasting bool
	// marks are the values of AnnotationQuiesced by copy.
	marks map[string]string
}

// outcome is how a step ended.
type outcome struct {
	err error
	// made are the copies that are known to have been made by create.
	made []string
	// cut are the copies that are cut, after await.
	cut []string
	// undone is how what was run by undoAll ended, by its place in freezing.left.
	undone map[int]error
}

// Note is what is worth telling of a freeze.
type Note struct {
	Command Command
	// Problem says what went wrong and what follows.
	Problem string
	// Undo: what went wrong is the undoing.
	Undo bool
}

// freezing is a freeze under way: what to do next follows from how the steps
// before it ended. It does nothing itself.
type freezing struct {
	freeze Freeze
	at     kind
	next   int       // of freeze.Before
	since  time.Time // the first hook of before
	begun  map[types.UID]bool
	mayRun map[types.UID]bool // Pods in which a hook of before may still run
	left   []undo             // of after
	pass   int                // over left
	asked  []string           // copies that may have been made
	made   []string           // copies that were
	marked bool
	marks  map[string]string
	// unheeded: a hook of before failed, with onError Continue.
	unheeded bool

	// failed says why no copy was asked for, flaw why those that were are not
	// quiesced.
	failed, flaw string
	notes        []Note
}

// undo is a hook of after that has to run, and how often it ran in vain.
type undo struct {
	command Command
	runs    int
	done    bool
}

// begin is a freeze that nothing was done of.
func begin(f Freeze) *freezing {
	return &freezing{freeze: f, begun: map[types.UID]bool{}, mayRun: map[types.UID]bool{}}
}

// takeUp is a freeze of which there is a record, and that nobody goes on with.
func takeUp(after []Command, copies []string) *freezing {
	f := &freezing{freeze: Freeze{Copies: copies, After: after}, asked: copies, begun: map[types.UID]bool{}}
	for _, c := range after {
		f.begun[c.PodUID] = true
	}
	f.flaw = "the manager was stopped between the hooks"
	f.undoing(nil)
	return f
}

// step is what to do at a time.
func (f *freezing) step(now time.Time) step {
	switch f.at {
	case run:
		b := f.freeze.Before[f.next]
		return step{kind: run, command: b.Command, within: min(b.timeout(), f.until(now))}
	case undoAll:
		return step{kind: undoAll, undo: f.toUndo(), lasting: true}
	case create:
		return step{kind: create, within: max(f.until(now), leastCreate)}
	case await:
		return step{kind: await, copies: f.made, within: f.until(now)}
	case mark:
		return step{kind: mark, marks: f.marks, lasting: true}
	case pause:
		return step{kind: pause, within: min(firstWait<<min(f.pass, 10), longestWait)}
	}
	return step{kind: f.at, lasting: f.at == erase}
}

// until is how long the Pods may stay frozen.
func (f *freezing) until(now time.Time) time.Duration {
	if f.since.IsZero() {
		return f.freeze.MaxFreeze
	}
	return f.freeze.MaxFreeze - now.Sub(f.since)
}

// saw goes on from how a step ended, at a time.
func (f *freezing) saw(now time.Time, o outcome) {
	switch f.at {
	case record:
		if o.err != nil {
			// It may have been written all the same.
			f.failed, f.at = fmt.Sprintf("what to undo cannot be written down, so no hook is run: %v", o.err), erase
			return
		}
		f.since = now
		f.goBefore(now)
	case run:
		f.ran(now, o.err)
	case create:
		f.asked, f.made = f.freeze.Copies, o.made
		if len(f.made) == 0 {
			f.undoing(nil)
			return
		}
		f.at = await
	case await:
		if len(o.cut) < len(f.made) && f.flaw == "" {
			f.flaw = fmt.Sprintf("it was not cut within maxFreezeSeconds (%d)", int(f.freeze.MaxFreeze.Seconds()))
			if o.err != nil {
				f.flaw = fmt.Sprintf("its cut was not waited for: %v", o.err)
			}
		}
		f.undoing(o.cut)
	case undoAll:
		for i := range f.left {
			if err, ran := o.undone[i]; ran {
				f.undid(&f.left[i], err)
			}
		}
		f.goMark()
	case mark:
		f.marked = o.err == nil
		f.at = pause
		f.settle()
	case pause:
		f.pass++
		f.goUndo()
	case erase:
		f.at = over
		if o.err != nil {
			f.at = pause
		}
	}
}

// ran goes on from a hook of before.
func (f *freezing) ran(now time.Time, err error) {
	b := f.freeze.Before[f.next]
	f.next++
	if err == nil {
		f.goBefore(now)
		return
	}
	if errors.Is(err, ErrMayRun) {
		f.mayRun[b.PodUID] = true
	}
	f.fails(b, fmt.Sprint(err))
	if f.failed != "" {
		f.undoing(nil)
		return
	}
	f.goBefore(now)
}

// fails notes that a hook of before failed.
func (f *freezing) fails(b Before, why string) {
	problem := fmt.Sprintf("%s: %s", b.Command, why)
	if b.Cannot != "" {
		problem = fmt.Sprintf("hook %s: %s", b.Hook, b.Cannot)
	}
	if b.Continue {
		f.unheeded, f.flaw = true, problem
		f.notes = append(f.notes, Note{Command: b.Command, Problem: problem + "; the copies are made as they are (onError Continue)"})
		return
	}
	f.failed = problem
	f.notes = append(f.notes, Note{Command: b.Command, Problem: problem + "; no copy is asked for (onError Fail)"})
}

// goBefore goes on to the next hook of before that can be run, or to the copies.
func (f *freezing) goBefore(now time.Time) {
	for ; f.next < len(f.freeze.Before); f.next++ {
		b := f.freeze.Before[f.next]
		late := f.until(now) <= 0
		if b.Cannot == "" && !late {
			f.begun[b.PodUID] = true
			f.at = run
			return
		}
		f.fails(b, fmt.Sprintf("maxFreezeSeconds (%d) had passed before it", int(f.freeze.MaxFreeze.Seconds())))
		if f.failed != "" {
			f.undoing(nil)
			return
		}
	}
	f.at = create
}

// undoing begins to undo, with what was seen to be cut until now.
func (f *freezing) undoing(cut []string) {
	f.marks = map[string]string{}
	for _, name := range f.asked {
		f.marks[name] = v1alpha1.NotQuiesced
		if slices.Contains(cut, name) && !f.unheeded {
			f.marks[name] = v1alpha1.Quiesced
		}
	}
	for _, c := range f.freeze.After {
		if f.begun[c.PodUID] {
			f.left = append(f.left, undo{command: c})
		}
	}
	f.goUndo()
}

// toUndo are the places in left of what is not done, by Pod.
func (f *freezing) toUndo() [][]int {
	var all [][]int
	of := map[types.UID]int{}
	for i, u := range f.left {
		if u.done {
			continue
		}
		at, known := of[u.command.PodUID]
		if !known {
			at = len(all)
			of[u.command.PodUID] = at
			all = append(all, nil)
		}
		all[at] = append(all[at], i)
	}
	return all
}

// goUndo goes on to the hooks of after that are not done, else to what follows.
func (f *freezing) goUndo() {
	if len(f.toUndo()) > 0 {
		f.at = undoAll
		return
	}
	f.goMark()
}

// goMark goes on to the marks where they are not written, else to what follows.
func (f *freezing) goMark() {
	if !f.marked && len(f.marks) > 0 {
		f.at = mark
		return
	}
	f.settle()
}

// settle goes on to the end where nothing is left to do, else to a wait.
func (f *freezing) settle() {
	undone := !slices.ContainsFunc(f.left, func(u undo) bool { return !u.done })
	if undone && (f.marked || len(f.marks) == 0) {
		f.at = erase
		return
	}
	f.at = pause
}

// undid goes on from a hook of after.
func (f *freezing) undid(u *undo, err error) {
	switch {
	case err == nil, errors.Is(err, ErrGone):
		u.done = true
	case errors.Is(err, ErrRan):
		u.runs++
		u.done = u.runs >= maxRuns && (!f.mayRun[u.command.PodUID] || f.pass >= blocking)
		if u.done {
			f.notes = append(f.notes, Note{Command: u.command, Problem: fmt.Sprintf("%s: %v; it was run %d times and is given up: see to the Pod by hand", u.command, err, maxRuns), Undo: true})
		}
	case f.pass == 0:
		f.notes = append(f.notes, Note{Command: u.command, Problem: fmt.Sprintf("%s: %v; it is tried again for as long as the Pod is there", u.command, err), Undo: true})
	}
}
