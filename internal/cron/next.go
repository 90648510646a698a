package cron

import (
	"time"

	robfig "github.com/robfig/cron/v3"
)

// maxMissed is how far missed runs are counted.
const maxMissed = 100

// wallEpoch begins the longest stretch of the calendar without a leap year,
// 2097 to 2103: what is not due from here on is never due.
var wallEpoch = time.Date(2097, 1, 1, 0, 0, 0, 0, time.UTC)

// nextWall is the first wall clock after another that fits. robfig looks five
// years ahead, and 29 February can be eight years away, so it is asked twice.
func nextWall(s *robfig.SpecSchedule, after time.Time) (time.Time, bool) {
	if t := s.Next(after); !t.IsZero() {
		return t, true
	}
	t := s.Next(time.Date(after.Year()+5, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second))
	return t, !t.IsZero()
}

// Next is the first instant after another at which the schedule is due, in UTC.
func (s *Schedule) Next(after time.Time) time.Time {
	for span := s.spanOf(after); ; span = s.spanOf(span.end) {
		t, ok := s.named(span, after)
		if s.elapsed {
			t, ok = s.counted(span, after)
		}
		if ok {
			return t
		}
	}
}

// Upcoming are the next n instants after another.
func (s *Schedule) Upcoming(after time.Time, n int) []time.Time {
	times := make([]time.Time, 0, n)
	for len(times) < n {
		after = s.Next(after)
		times = append(times, after)
	}
	return times
}

// Latest is the last instant at which the schedule was due that is after one
// instant and not after another; false: there is none.
func (s *Schedule) Latest(after, until time.Time) (time.Time, bool) {
	if !after.Before(until) {
		return time.Time{}, false
	}
	// Doubling steps back find a run, halving what is between it and the end
	// finds the last, however far back it is and however many there are.
	from := until
	for back := time.Minute; s.Next(from).After(until); back *= 2 {
		if from.Equal(after) {
			return time.Time{}, false
		}
		if from = until.Add(-back); from.Before(after) {
			from = after
		}
	}
	for to := until; ; {
		latest := s.Next(from)
		if s.Next(latest).After(until) {
			return latest, true
		}
		if middle := from.Add(to.Sub(from) / 2); s.Next(middle).After(until) {
			to = middle
		} else {
			from = middle
		}
	}
}

// Missed counts how often the schedule was due after one instant and not after
// another, to 100 at most.
func (s *Schedule) Missed(after, until time.Time) int {
	n := 0
	for t := s.Next(after); n < maxMissed && !t.After(until); t = s.Next(t) {
		n++
	}
	return n
}

// longestGap between two runs: from one 29 February to the next around 2100,
// with days to spare for zones.
const longestGap = (8*366 + 3) * 24 * time.Hour

// Interval is the time that may lie between two runs around an instant: the
// longer of the stretch between runs that the instant is in and the one before
// that. So a night or a weekend without runs counts until the run after it has
// had its time.
func (s *Schedule) Interval(at time.Time) time.Duration {
	last, ok := s.Latest(at.Add(-longestGap), at)
	if !ok {
		return longestGap
	}
	current := s.Next(at).Sub(last)
	before, ok := s.Latest(last.Add(-longestGap), last.Add(-time.Nanosecond))
	if !ok {
		return current
	}
	return max(current, last.Sub(before))
}

// span is a stretch of time in which a zone's clocks run evenly.
type span struct {
	start, end time.Time // end is the first instant after it; zero: for ever
	offset     time.Duration
	// before is the offset of the span before; the same as offset where there is none.
	before time.Duration
	// seen is the wall clock before which every wall clock has been passed or
	// skipped when the span begins.
	seen time.Time
}

// spanOf is the span that an instant is in.
func (s *Schedule) spanOf(t time.Time) span {
	of := s.bounds(t)
	of.before, of.seen = of.offset, of.wall(of.start)
	if of.start.IsZero() {
		return of
	}
	previous := s.bounds(of.start.Add(-time.Nanosecond))
	of.before, of.seen = previous.offset, of.start.Add(previous.offset)
	return of
}

// bounds are start, end and offset of the span that an instant is in.
func (s *Schedule) bounds(t time.Time) span {
	t = t.In(s.zone)
	start, end := t.ZoneBounds()
	_, seconds := t.Zone()
	// Past the years of a zone's table, time (Go 1.26) takes all years for as long
	// as 365 days: on the last day of a leap year the span would have ended when
	// that began, and the one after it would be the same, without end. No clocks
	// change at a turn of the year.
	if !end.IsZero() && !end.After(t) {
		end = time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return span{start: start.UTC(), end: end.UTC(), offset: time.Duration(seconds) * time.Second}
}

// wall is what clocks show at an instant, written in UTC.
func (p span) wall(t time.Time) time.Time { return t.UTC().Add(p.offset) }

// holds says whether an instant is before the end of the span.
func (p span) holds(t time.Time) bool { return p.end.IsZero() || t.Before(p.end) }

// first is the first instant of the span after another whose wall clock, by an
// offset, fits and is not before from.
func (s *Schedule) first(p span, after time.Time, offset time.Duration, from time.Time) (time.Time, bool) {
	wall := after.UTC().Add(offset)
	for _, least := range []time.Time{from, p.start.Add(offset)} {
		if least = least.Add(-time.Nanosecond); wall.Before(least) {
			wall = least
		}
	}
	wall, ok := nextWall(s.wall, wall)
	if !ok {
		return time.Time{}, false
	}
	t := wall.Add(-offset)
	return t, p.holds(t)
}

// named is the next run in a span of a schedule with named hours.
func (s *Schedule) named(p span, after time.Time) (time.Time, bool) {
	if begins := p.wall(p.start); p.start.After(after) && p.seen.Before(begins) {
		if skipped, ok := nextWall(s.wall, p.seen.Add(-time.Nanosecond)); ok && skipped.Before(begins) {
			return p.start, true
		}
	}
	return s.first(p, after, p.offset, p.seen)
}

// counted is the next run in a span of a schedule whose hours follow elapsed time.
func (s *Schedule) counted(p span, after time.Time) (time.Time, bool) {
	t, ok := s.first(p, after, p.offset, time.Time{})
	moved := (p.offset - p.before).Abs()
	old, also := s.first(p, after, p.before, time.Time{})
	if also && old.Before(p.start.Add(moved)) && (!ok || old.Before(t)) {
		return old, true
	}
	return t, ok
}

// EitherDay says whether the schedule limits both the day of month and the day
// of week: it is due on days that fit either, where people often mean both.
func (s *Schedule) EitherDay() bool {
	// robfig marks a field that is * with the highest bit, and goes by that.
	const star = 1 << 63
	return s.wall.Dom&star == 0 && s.wall.Dow&star == 0
}
