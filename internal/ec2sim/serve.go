package ec2sim

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// request is one call while it is handled.
type request struct {
	*form
	sim       *Sim
	action    *action
	principal string
	now       time.Time
	fault     *Fault // nil if the call suffers none
}

func (r *request) dryRun() bool { return r.boolean("DryRun") }

// ServeHTTP serves the EC2 API on every path but /_sim/.
func (s *Sim) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	if strings.HasPrefix(hr.URL.Path, controlPrefix) {
		s.control.ServeHTTP(w, hr)
		return
	}
	begin := s.clock.Now()
	requestID := uuid.NewString()
	name, principal, ans, refusal, lose := s.call(hr)
	code := "OK"
	if refusal != nil {
		code = refusal.Code
	}
	s.record(name, principal, code)
	s.cfg.Log.Info("call", "action", name, "principal", principal, "code", code, "ms", s.clock.Since(begin).Milliseconds(), "lost", lose != answered)
	switch {
	case lose == held:
		<-hr.Context().Done()
		panic(http.ErrAbortHandler)
	case lose == lost:
		panic(http.ErrAbortHandler) // closes the connection without a byte
	case refusal != nil:
		writeError(w, requestID, refusal)
	default:
		if err := writeAnswer(w, name, requestID, ans); err != nil {
			writeError(w, requestID, internalError(err))
		}
	}
}

// fate is what becomes of an answer.
type fate int

const (
	answered fate = iota // it is sent
	lost                 // the connection is closed without it
	held                 // the connection stays open without it, until the caller closes it
)

// call handles one call of the API and says what becomes of the answer.
func (s *Sim) call(hr *http.Request) (name, principal string, ans stampable, refusal *APIError, end fate) {
	principal, values, refusal := parseRequest(hr)
	name = values.Get("Action")
	if refusal != nil {
		return name, principal, nil, refusal, answered
	}
	act := s.actions[name]
	if act == nil {
		return name, principal, nil, s.notModelled("action", name, ""), answered
	}
	r := &request{form: &form{values: values}, sim: s, action: act, principal: principal}
	if refusal = s.throttled(r); refusal != nil {
		return name, principal, nil, refusal, answered
	}
	fault := s.takeFault(name, principal)
	refusal, gone := s.suffer(hr.Context(), fault)
	if gone {
		return name, principal, nil, nil, lost
	}
	if refusal != nil {
		return name, principal, nil, refusal, answered
	}
	r.fault = fault
	ans, refusal = s.act(r)
	return name, principal, ans, refusal, fault.fate()
}

// parseRequest reads the form and tells who calls.
func parseRequest(hr *http.Request) (string, url.Values, *APIError) {
	if err := hr.ParseForm(); err != nil {
		return "", hr.Form, refuse("MalformedQueryString", "The query string contains a syntax error: %v", err)
	}
	principal, err := accessKey(hr)
	return principal, hr.Form, err
}

// act checks that the call is modelled, runs it and keeps what it changed.
func (s *Sim) act(r *request) (stampable, *APIError) {
	for _, key := range sortedKeys(r.values) {
		if !r.action.knows(key) {
			return nil, s.notModelled("parameter", r.action.name, pattern(key))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	r.now = s.clock.Now()
	ans, refusal := s.handle(r)
	if err := s.commit(); err != nil {
		return nil, err
	}
	if refusal == nil && r.dryRun() {
		// every handler honours a dry run; one that forgot must not go unseen
		return nil, refuse("InternalError", "%s does not honour DryRun", r.action.name)
	}
	// what needs no time is done at once
	s.advance()
	return ans, refusal
}

// handle runs the handler, which of a read that lags sees the past.
func (s *Sim) handle(r *request) (stampable, *APIError) {
	if lag := s.lagOf(r.action.name); lag > 0 {
		present := s.store
		s.store = present.history.at(r.now.Add(-lag))
		defer func() { s.store = present }()
	}
	return r.action.handle(r)
}

func sortedKeys(v url.Values) []string {
	keys := make([]string, 0, len(v))
	for k := range v {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// accessKey is the access key id in the Authorization header, which is who
// calls. The signature is not checked.
func accessKey(hr *http.Request) (string, *APIError) {
	_, cred, ok := strings.Cut(hr.Header.Get("Authorization"), "Credential=")
	key, _, scoped := strings.Cut(cred, "/")
	if !ok || !scoped || key == "" {
		return "", refuse("AuthFailure", "AWS was not able to validate the provided access credentials")
	}
	return key, nil
}
