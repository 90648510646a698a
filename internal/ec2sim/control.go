package ec2sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// controlPrefix is where the control API lives.
const controlPrefix = "/_sim/"

// controlHandler is the control API: JSON in and out, one entry a path. An
// error is 400 with {"error": …}; nothing to say is 204.
func (s *Sim) controlHandler() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, f func() any) {
		mux.HandleFunc("GET "+controlPrefix+path, func(w http.ResponseWriter, _ *http.Request) { reply(w, f(), nil) })
	}
	get("state", func() any { return s.State() })
	get("instances", func() any { return s.Instances() })
	get("calls", func() any { return s.Calls() })
	get("permissions", func() any { return s.Permissions() })
	get("faults", func() any { return s.Faults() })
	get("unmodelled", func() any { return s.Unmodelled() })
	get("delays", func() any { return s.Delays() })
	get("lag", func() any { return s.ReadLag() })
	get("quotas", func() any { return s.Quotas() })
	get("throttling", func() any { return throttleState{s.Throttled()} })

	clearing := func(path string, f func()) {
		mux.HandleFunc("DELETE "+controlPrefix+path, func(w http.ResponseWriter, _ *http.Request) {
			f()
			reply(w, nil, nil)
		})
	}
	clearing("calls", s.ResetCalls)
	clearing("faults", s.ClearFaults)
	clearing("unmodelled", s.ResetUnmodelled)

	taking(mux, "POST", "faults", func() Fault { return Fault{} }, s.Inject)
	taking(mux, "POST", "instances", func() Instance { return Instance{} }, s.AddInstance)
	taking(mux, "PUT", "delays", s.Delays, s.SetDelays)
	taking(mux, "PUT", "lag", func() map[string]Duration { return nil }, s.SetReadLag)
	taking(mux, "PUT", "quotas", func() Quotas { return Quotas{} }, func(q Quotas) error { s.SetQuotas(q); return nil })
	taking(mux, "PUT", "throttling", func() throttleState { return throttleState{} },
		func(t throttleState) error { s.SetThrottle(t.On); return nil })

	acting := func(method, path string, f func(id string) error) {
		mux.HandleFunc(method+" "+controlPrefix+path, func(w http.ResponseWriter, r *http.Request) { reply(w, nil, f(r.PathValue("id"))) })
	}
	mux.HandleFunc("PUT "+controlPrefix+"volumes/{id}/trouble", func(w http.ResponseWriter, r *http.Request) {
		var t Trouble
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&t); err != nil {
			reply(w, nil, fmt.Errorf("body of %s: %w", r.URL.Path, err))
			return
		}
		reply(w, nil, s.SetTrouble(r.PathValue("id"), t))
	})
	acting("POST", "instances/{id}/start", s.StartInstance)
	acting("POST", "instances/{id}/stop", s.StopInstance)
	acting("POST", "instances/{id}/terminate", s.TerminateInstance)
	acting("DELETE", "instances/{id}", s.RemoveInstance)
	return mux
}

type throttleState struct {
	On bool `json:"on"`
}

// taking serves a path that takes a JSON body over what start gives, so that a
// PUT of a part keeps the rest.
func taking[T any](mux *http.ServeMux, method, path string, start func() T, f func(T) error) {
	mux.HandleFunc(method+" "+controlPrefix+path, func(w http.ResponseWriter, r *http.Request) {
		body := start()
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			reply(w, nil, fmt.Errorf("body of %s: %w", r.URL.Path, err))
			return
		}
		reply(w, nil, f(body))
	})
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		v = map[string]string{"error": err.Error()}
	} else if v == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client has gone; nothing is left to tell it
}

// State is everything the region holds.
type State struct {
	Region    string     `json:"region"`
	Account   string     `json:"account"`
	Volumes   []Volume   `json:"volumes"` // root disks are not listed
	Snapshots []Snapshot `json:"snapshots"`
	Instances []Instance `json:"instances"`
}

// State is a copy of everything the region holds.
func (s *Sim) State() State {
	return State{s.cfg.Region, s.cfg.Account, s.Volumes(), s.Snapshots(), s.Instances()}
}

func sortedUnique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
