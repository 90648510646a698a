package ec2sim

import (
	"cmp"
	"slices"
)

// CallCount is how often a principal called an action with an outcome.
type CallCount struct {
	Action    string `json:"action"`
	Principal string `json:"principal"`
	// Code is the error code, OK for a success.
	Code  string `json:"code"`
	Count int    `json:"count"`
}

type callKey struct{ action, principal, code string }

func (s *Sim) record(action, principal, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[callKey{action, principal, code}]++
}

// Calls counts the calls since the start or the last ResetCalls, ordered by
// action, principal and code. Calls hit by a fault or refused count as well.
func (s *Sim) Calls() []CallCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []CallCount{}
	for k, n := range s.calls {
		out = append(out, CallCount{Action: k.action, Principal: k.principal, Code: k.code, Count: n})
	}
	slices.SortFunc(out, func(a, b CallCount) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// ResetCalls begins counting calls and permissions anew.
func (s *Sim) ResetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.permissions)
	clear(s.calls)
}

// Unmodelled is something that was asked for and is not modelled.
type Unmodelled struct {
	// What is "action", "parameter" or "filter".
	What string `json:"what"`
	// Action is the action called.
	Action string `json:"action"`
	// Name is the parameter or filter; empty for an action.
	Name string `json:"name,omitempty"`
}

// UnmodelledCount is how often it was asked for.
type UnmodelledCount struct {
	Unmodelled
	Count int `json:"count"`
}

// Unmodelled lists what was asked for and is not modelled. A test that ends
// with an entry here has tested less than it believes.
func (s *Sim) Unmodelled() []UnmodelledCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []UnmodelledCount{}
	for u, n := range s.unmodelled {
		out = append(out, UnmodelledCount{u, n})
	}
	slices.SortFunc(out, func(a, b UnmodelledCount) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.What, b.What), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// testingT is what FailOnUnmodelled needs of testing.TB.
type testingT interface {
	Helper()
	Errorf(format string, args ...any)
}

// FailOnUnmodelled fails a test if something was asked for that is not modelled.
func (s *Sim) FailOnUnmodelled(t testingT) {
	t.Helper()
	for _, u := range s.Unmodelled() {
		t.Errorf("ec2sim does not model %s %s %s, asked for %d times", u.What, u.Action, u.Name, u.Count)
	}
}

// ResetUnmodelled forgets what was asked for and is not modelled.
func (s *Sim) ResetUnmodelled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.unmodelled)
}

// notModelled records and refuses what the simulator does not do. The codes
// are none of EC2's, so that nobody takes them for an answer of EC2.
func (s *Sim) notModelled(what, action, name string) *APIError {
	s.mu.Lock()
	s.unmodelled[Unmodelled{what, action, name}]++
	s.mu.Unlock()
	return s.notModelledError(what, action, name)
}

// notModelledLocked is notModelled for callers that hold s.mu.
func (s *Sim) notModelledLocked(what, action, name string) *APIError {
	s.unmodelled[Unmodelled{what, action, name}]++
	return s.notModelledError(what, action, name)
}

func (s *Sim) notModelledError(what, action, name string) *APIError {
	s.cfg.Log.Info("not modelled", "what", what, "action", action, "name", name)
	switch what {
	case "action":
		return refuse("NotModelled.Action", "ec2sim does not model the action %s", action)
	case "parameter":
		return refuse("NotModelled.Parameter", "ec2sim does not model the parameter %s of %s", name, action)
	default:
		return refuse("NotModelled.Filter", "ec2sim does not model the filter %s of %s", name, action)
	}
}
