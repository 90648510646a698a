package expansion

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/usage"
)

// maxRecorded is how many modifications are kept: the largest budget there can be.
const maxRecorded = 100

// Record is what is kept on a claim of its modifications, in the annotation
// holdfast.dev/modifications.
type Record struct {
	// RequestBytes and Class are the size and the attributes class that the claim
	// asked for when it was last looked at.
	RequestBytes int64  `json:"requestBytes"`
	Class        string `json:"attributesClass,omitempty"`
	// Modifications are the newest of them, oldest first.
	Modifications []Modification `json:"modifications,omitempty"`
}

// Modification is a change of a claim's size or attributes class.
type Modification struct {
	// At is when it was asked for, as far as was seen.
	At time.Time `json:"at"`
	// FromBytes is the capacity before, ToBytes the size asked for; 0: the
	// attributes class was changed, and not the size.
	FromBytes int64 `json:"fromBytes,omitempty"`
	ToBytes   int64 `json:"toBytes,omitempty"`
	// FilesystemBytes is the size of the filesystem before; 0: it was not known.
	FilesystemBytes int64 `json:"filesystemBytes,omitempty"`
	// Ours: the policy asked for it, and nobody by hand.
	Ours bool `json:"byPolicy,omitempty"`
	// Retry: it is the second try of one that was infeasible.
	Retry bool `json:"retry,omitempty"`
	// Done is when it was seen to be over; nil: it is not, or failed.
	Done *time.Time `json:"done,omitempty"`
}

// parseRecord reads the annotation; nil where there is none.
func parseRecord(annotations map[string]string) (*Record, error) {
	text, there := annotations[v1alpha1.AnnotationModifications]
	if !there {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("the annotation %s cannot be read: %w; the manager writes it: take it off, and growth goes on with a budget that begins anew", v1alpha1.AnnotationModifications, err)
	}
	return r, nil
}

// String is the record as it is written.
func (r *Record) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers, texts and times
	}
	return string(text)
}

// with is the record with one more modification. The receiver may be nil.
func (r *Record) with(m Modification, requestBytes int64, class string) *Record {
	next := &Record{RequestBytes: requestBytes, Class: class}
	if r != nil {
		next.Modifications = append(next.Modifications, r.Modifications...)
	}
	next.Modifications = append(next.Modifications, m)
	if n := len(next.Modifications); n > maxRecorded {
		next.Modifications = next.Modifications[n-maxRecorded:]
	}
	return next
}

// ahead is how far a time may be in the future, by clocks that differ.
const ahead = time.Minute

// until is the record with no time that is ahead of now: the clock went back, and
// what it said before would hold a claim up for as long. It counts as of now.
func (r *Record) until(now time.Time) *Record {
	late := func(at time.Time) bool { return at.After(now.Add(ahead)) }
	if r == nil || !slices.ContainsFunc(r.Modifications, func(m Modification) bool { return late(m.At) || m.Done != nil && late(*m.Done) }) {
		return r
	}
	next := &Record{RequestBytes: r.RequestBytes, Class: r.Class, Modifications: slices.Clone(r.Modifications)}
	for i := range next.Modifications {
		m := &next.Modifications[i]
		if late(m.At) {
			m.At = now
		}
		if m.Done != nil && late(*m.Done) {
			m.Done = &now
		}
	}
	return next
}

// measured is the record with the size that the filesystem had before the newest
// modification of the size, where that is not in it and the sample is from before it:
// who asked for the modification need not have known.
func (r *Record) measured(s usage.Sample) *Record {
	m := r.newestSize()
	if m == nil || m.Done != nil || m.FilesystemBytes != 0 || s.Bytes.Total == 0 || s.At.After(m.At) {
		return r
	}
	next := &Record{RequestBytes: r.RequestBytes, Class: r.Class, Modifications: slices.Clone(r.Modifications)}
	next.newestSize().FilesystemBytes = s.Bytes.Total
	return next
}

// done is the record with all modifications over, and those of the policy that
// were not before and have come to their size: one that was infeasible has not.
// What was out of any window is dropped, but for the newest.
func (r *Record) done(now time.Time) (next *Record, ours []Modification) {
	next = &Record{RequestBytes: r.RequestBytes, Class: r.Class}
	for i, m := range r.Modifications {
		if m.Done == nil {
			m.Done = &now
			if m.Ours && m.ToBytes <= r.RequestBytes {
				ours = append(ours, m)
			}
		}
		if last := i == len(r.Modifications)-1; last || now.Sub(m.At) <= maxWindow {
			next.Modifications = append(next.Modifications, m)
		}
	}
	return next, ours
}

// maxWindow is the longest window that a budget can have.
const maxWindow = 30 * 24 * time.Hour

// open says whether there are modifications that are not over.
func (r *Record) open() bool {
	if r == nil {
		return false
	}
	for _, m := range r.Modifications {
		if m.Done == nil {
			return true
		}
	}
	return false
}

// newest is the newest modification; nil: there was none.
func (r *Record) newest() *Modification {
	if r == nil || len(r.Modifications) == 0 {
		return nil
	}
	return &r.Modifications[len(r.Modifications)-1]
}

// newestSize is the newest modification of the size; nil: there was none.
func (r *Record) newestSize() *Modification {
	if r == nil {
		return nil
	}
	for i := len(r.Modifications) - 1; i >= 0; i-- {
		if r.Modifications[i].ToBytes != 0 {
			return &r.Modifications[i]
		}
	}
	return nil
}

// within are the times of the modifications since then, oldest first.
func (r *Record) within(window time.Duration, now time.Time) []time.Time {
	if r == nil {
		return nil
	}
	var times []time.Time
	for _, m := range r.Modifications {
		if m.At.After(now.Add(-window)) {
			times = append(times, m.At)
		}
	}
	return times
}
