package orphan

import "time"

// What fails is tried again after a minute, then after twice the time before, up to
// an hour.
const (
	retryFirst = time.Minute
	retryMost  = time.Hour
)

// memory is what is remembered of an orphan from sweep to sweep. It is not kept
// over a restart: then what failed is tried once more.
type memory struct {
	since   time.Time // since when it has been seen left behind without a break
	verdict Verdict
	told    string // of it last
	failed  failure
}

// failure is that a step did not come to its end; zero: none did so since the last
// success.
type failure struct {
	why   string
	after time.Duration
	next  time.Time
}

// held puts off a step that failed not long ago.
func (m *memory) held(now time.Time, v Verdict) Verdict {
	if (v.Step == Snapshot || v.Step == Delete) && m.failed.next.After(now) {
		v.Step, v.Why = Blocked, m.failed.why
	}
	return v
}

// putOff remembers that a step failed.
func (m *memory) putOff(now time.Time, why string) {
	after := max(retryFirst, min(2*m.failed.after, retryMost))
	m.failed = failure{why: why, after: after, next: now.Add(after)}
	m.verdict.Step, m.verdict.Why = Blocked, why
}

// stuck says whether an orphan is to go and cannot, which also holds while it is
// tried once more.
func (m *memory) stuck() bool {
	trying := m.verdict.Step == Snapshot || m.verdict.Step == Delete
	return m.verdict.Step == Blocked || trying && m.failed.after > 0
}
