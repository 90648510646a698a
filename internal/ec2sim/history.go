package ec2sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// SetReadLag has reads see the region as it was that long ago, by the name of
// the describing action, "*" for all that are not named. An empty map: reads
// see everything at once. EC2's API is eventually consistent:
// https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
func (s *Sim) SetReadLag(lag map[string]Duration) error {
	for name, d := range lag {
		if name != "*" && (s.actions[name] == nil || !strings.HasPrefix(name, "Describe")) {
			return fmt.Errorf("lag of %q: not a describing action of this simulator", name)
		}
		if d < 0 {
			return fmt.Errorf("lag of %s is %v: want none below 0", name, time.Duration(d))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = maps.Clone(lag)
	longest := time.Duration(0)
	for _, d := range lag {
		longest = max(longest, time.Duration(d))
	}
	switch {
	case longest == 0:
		s.store.history = nil
	case s.store.history == nil:
		s.advance()
		s.store.history = newHistory(s.store, s.clock, longest)
	default:
		s.store.history.keep = max(s.store.history.keep, longest)
	}
	return nil
}

// ReadLag is the lag in force.
func (s *Sim) ReadLag() map[string]Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Duration{}
	maps.Copy(out, s.lag)
	return out
}

// lagOf is the lag of an action, 0 for none.
func (s *Sim) lagOf(action string) time.Duration {
	if d, ok := s.lag[action]; ok {
		return time.Duration(d)
	}
	if !strings.HasPrefix(action, "Describe") {
		return 0
	}
	return time.Duration(s.lag["*"])
}

// history keeps what records were, for reads that lag.
type history struct {
	clock    clock.PassiveClock
	keep     time.Duration
	versions map[string][]version // by key of the record, oldest first
}

// version is what a record was from a time on, nil if it was gone.
type version struct {
	since  time.Time
	record any
}

// newHistory takes what is there to have been there for ever.
func newHistory(st *store, c clock.PassiveClock, keep time.Duration) *history {
	h := &history{clock: c, keep: keep, versions: map[string][]version{}}
	seed := func(key string, record any) { h.versions[key] = []version{{record: frozen(record)}} }
	for id, v := range st.volumes {
		seed(kindVolume+id, v)
	}
	for id, sn := range st.snapshots {
		seed(kindSnapshot+id, sn)
	}
	for id, i := range st.instances {
		seed(kindInstance+id, i)
	}
	return h
}

// note remembers changed records; a nil history remembers nothing.
func (h *history) note(changed map[string]any) {
	if h == nil {
		return
	}
	now := h.clock.Now()
	for key, record := range changed {
		if !strings.HasPrefix(key, kindToken) { // no read shows them
			h.versions[key] = append(h.versions[key], version{now, frozen(record)})
		}
	}
	h.forget(now.Add(-h.keep))
}

// forget drops what no read can see any more.
func (h *history) forget(before time.Time) {
	for key, versions := range h.versions {
		n := current(versions, before)
		if n > 0 {
			versions = slices.Delete(versions, 0, n)
			h.versions[key] = versions
		}
		if len(versions) == 1 && versions[0].record == nil && !versions[0].since.After(before) {
			delete(h.versions, key)
		}
	}
}

// current is the index of the version that held at a time, -1 for none.
func current(versions []version, at time.Time) int {
	for n := len(versions) - 1; n >= 0; n-- {
		if !versions[n].since.After(at) {
			return n
		}
	}
	return -1
}

// at is a store as it was at a time, to be read only.
func (h *history) at(at time.Time) *store {
	st := newStore()
	for _, versions := range h.versions {
		n := current(versions, at)
		if n < 0 {
			continue
		}
		switch rec := versions[n].record.(type) {
		case *Volume:
			st.volumes[rec.ID] = rec
		case *Snapshot:
			st.snapshots[rec.ID] = rec
		case *Instance:
			st.instances[rec.ID] = rec
		}
	}
	return st
}

// frozen is a copy of a record that nothing changes any more.
func frozen(record any) any {
	switch rec := record.(type) {
	case *Volume:
		c := rec.clone()
		return &c
	case *Snapshot:
		c := rec.clone()
		return &c
	case *Instance:
		c := rec.clone()
		return &c
	}
	return nil
}
