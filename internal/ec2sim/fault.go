package ec2sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Fault makes calls of an action fail. It is also the body of POST /_sim/faults.
type Fault struct {
	// Action is the action's name; "*" is every action.
	Action string `json:"action"`
	// Principal limits the fault to one access key; empty: all.
	Principal string `json:"principal,omitempty"`
	// Code is the error code to answer without acting; empty: act.
	Code string `json:"code,omitempty"`
	// Message goes with the code.
	Message string `json:"message,omitempty"`
	// HTTPStatus is the status to answer with; 0: EC2's for the code.
	HTTPStatus int `json:"httpStatus,omitempty"`
	// LatencyMs is how long the call waits before anything else, in milliseconds.
	LatencyMs int `json:"latencyMs,omitempty"`
	// LostAnswer closes the connection without an answer: "before" acting or
	// "after" it; "held" acts and leaves it open until the caller closes it.
	LostAnswer string `json:"lostAnswer,omitempty"`
	// Outcome has the call succeed and what it began end badly: OutcomeVanish,
	// OutcomeStuck or OutcomeError.
	Outcome string `json:"outcome,omitempty"`
	// Count is how many calls it hits: 0 is one, below 0 all until removed.
	Count int `json:"count,omitempty"`
	// Every has it hit only each so-many-th of the calls that it is for: with 3
	// the third, the sixth and so on. 0 and 1: each.
	Every int `json:"every,omitempty"`
}

// pendingFault is a fault that is still to come.
type pendingFault struct {
	Fault
	met int // calls that it is for, so far
}

// The values of Fault.LostAnswer.
const (
	LostBefore = "before"
	LostAfter  = "after"
	LostHeld   = "held"
)

// The values of Fault.Outcome.
const (
	// OutcomeVanish is for CreateVolume and CopyVolumes: the volume is gone
	// when it would have become available, as with a key that EBS cannot use.
	// https://github.com/kubernetes-sigs/aws-ebs-csi-driver/issues/3010
	OutcomeVanish = "vanish"
	// OutcomeStuck is for AttachVolume: the attachment is attaching until it
	// is detached, or the instance terminated.
	OutcomeStuck = "stuck"
	// OutcomeError is for CreateSnapshot, CreateSnapshots, CreateVolume and
	// CopyVolumes: the snapshots or the volume end in state error.
	OutcomeError = "error"
)

// outcomeActions are the actions that an outcome is for.
var outcomeActions = map[string][]string{
	OutcomeVanish: {"CreateVolume", "CopyVolumes"},
	OutcomeStuck:  {"AttachVolume"},
	OutcomeError:  {"CreateSnapshot", "CreateSnapshots", "CreateVolume", "CopyVolumes"},
}

func (f *Fault) ends(outcome string) bool { return f != nil && f.Outcome == outcome }

// fate is what becomes of the answer of a call that acted.
func (f *Fault) fate() fate {
	switch {
	case f == nil:
		return answered
	case f.LostAnswer == LostAfter:
		return lost
	case f.LostAnswer == LostHeld:
		return held
	}
	return answered
}

func (s *Sim) checkFault(f Fault) error {
	if f.Action != "*" && s.actions[f.Action] == nil {
		return fmt.Errorf("fault on action %q: not an action of this simulator", f.Action)
	}
	switch f.LostAnswer {
	case "", LostBefore, LostAfter, LostHeld:
	default:
		return fmt.Errorf("fault with lostAnswer %q: want %q, %q or %q", f.LostAnswer, LostBefore, LostAfter, LostHeld)
	}
	if f.Code == "" && f.HTTPStatus == 0 && f.LatencyMs <= 0 && f.LostAnswer == "" && f.Outcome == "" {
		return fmt.Errorf("fault on %s does nothing: give code, httpStatus, latencyMs, lostAnswer or outcome", f.Action)
	}
	if f.Every < 0 {
		return fmt.Errorf("fault on %s with every %d: want a number of calls, or 0 for each", f.Action, f.Every)
	}
	return f.checkOutcome()
}

func (f *Fault) checkOutcome() error {
	if f.Outcome == "" {
		return nil
	}
	of, known := outcomeActions[f.Outcome]
	switch {
	case !known:
		return fmt.Errorf("fault with outcome %q: want one of %v", f.Outcome, slices.Sorted(maps.Keys(outcomeActions)))
	case !slices.Contains(of, f.Action):
		return fmt.Errorf("fault on %s with outcome %q: that outcome is for %v", f.Action, f.Outcome, of)
	case f.Code != "" || f.HTTPStatus != 0 || f.LostAnswer == LostBefore:
		return fmt.Errorf("fault on %s with outcome %q: the call has to act; give no code, no httpStatus and no lostAnswer %q", f.Action, f.Outcome, LostBefore)
	}
	return nil
}

// Inject adds a fault. Faults of one action hit in the order they were added.
func (s *Sim) Inject(f Fault) error {
	if err := s.checkFault(f); err != nil {
		return err
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &pendingFault{Fault: f})
	return nil
}

// FailNext has the next n calls of an action fail with a code. It panics on
// an action that does not exist, as only a mistake in a test can ask for it.
func (s *Sim) FailNext(action, code string, n int) {
	if err := s.Inject(Fault{Action: action, Code: code, Count: n}); err != nil {
		panic(err)
	}
}

// Faults are the faults still to come.
func (s *Sim) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Fault{}
	for _, f := range s.faults {
		out = append(out, f.Fault)
	}
	return out
}

// ClearFaults removes all faults.
func (s *Sim) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault is the fault that this call suffers, nil if it suffers none.
func (s *Sim) takeFault(action, principal string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Action != "*" && f.Action != action || f.Principal != "" && f.Principal != principal {
			continue
		}
		if f.met++; f.Every > 1 && f.met%f.Every != 0 {
			continue
		}
		taken := f.Fault
		if f.Count > 0 {
			f.Count--
		}
		if f.Count == 0 {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
		}
		return &taken
	}
	return nil
}

// suffer waits and fails as the fault says.
func (s *Sim) suffer(ctx context.Context, f *Fault) (refusal *APIError, lost bool) {
	if f == nil {
		return nil, false
	}
	if f.LatencyMs > 0 {
		timer := s.clock.NewTimer(time.Duration(f.LatencyMs) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return nil, true
		}
	}
	if f.LostAnswer == LostBefore {
		return nil, true
	}
	if f.Code == "" && f.HTTPStatus == 0 {
		return nil, false
	}
	e := &APIError{Code: f.Code, Message: f.Message, Status: f.HTTPStatus}
	if e.Code == "" {
		e.Code = "InternalError"
	}
	if e.Message == "" {
		e.Message = "Request failed by an injected fault."
	}
	return e, false
}
