package cron

import (
	"archive/zip"
	"cmp"
	"fmt"
	"go/build"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The property: over two years, in every zone of the world, Next answers what a
// walk from minute to minute finds. The walk knows nothing of spans: it looks at
// the clock each minute and remembers what it saw.

// sample is a schedule and the same written as a predicate of a wall clock.
type sample struct {
	spec    string
	elapsed bool
	due     func(w time.Time) bool
}

var samples = []sample{
	{"30 2 * * *", false, func(w time.Time) bool { return w.Hour() == 2 && w.Minute() == 30 }},
	{"0 * * * *", true, func(w time.Time) bool { return w.Minute() == 0 }},
	{"10 0 * * *", false, func(w time.Time) bool { return w.Hour() == 0 && w.Minute() == 10 }},
	{"*/20 */2 * * *", true, func(w time.Time) bool { return w.Hour()%2 == 0 && w.Minute()%20 == 0 }},
	{"*/15 0-3 * * *", false, func(w time.Time) bool { return w.Hour() <= 3 && w.Minute()%15 == 0 }},
	{"0 3 1-7 * sun", false, func(w time.Time) bool {
		return w.Hour() == 3 && w.Minute() == 0 && (w.Day() <= 7 || w.Weekday() == time.Sunday)
	}},
}

// walk answers the minutes of a stretch at which a sample is due.
func walk(s sample, zone *time.Location, from, to time.Time) []time.Time {
	var runs []time.Time
	var old time.Duration // how the clock stood to UTC before it was moved
	var until time.Time   // how long the old clock counts too
	var highest time.Time // what the clock showed at most so far
	offset := offsetAt(zone, from.Add(-48*time.Hour))
	for t := from.Add(-48 * time.Hour); t.Before(to); t = t.Add(time.Minute) {
		if now := offsetAt(zone, t); now != offset {
			old, until = offset, t.Add((now - offset).Abs())
			offset = now
		}
		wall := t.Add(offset)
		due := false
		switch {
		case s.elapsed:
			due = s.due(wall) || t.Before(until) && s.due(t.Add(old))
		case highest.IsZero():
			due = s.due(wall)
		default: // every minute that the clock shows or skips for the first time
			for w := highest.Add(time.Minute); !w.After(wall); w = w.Add(time.Minute) {
				due = due || s.due(w)
			}
		}
		if wall.After(highest) {
			highest = wall
		}
		if due && !t.Before(from) {
			runs = append(runs, t)
		}
	}
	return runs
}

func offsetAt(zone *time.Location, t time.Time) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// compare asks Next at every step of a stretch.
func compare(t *testing.T, s sample, zone string, from, to time.Time, step time.Duration) {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	schedule := must(t, s.spec, zone)
	runs := walk(s, location, from, to)
	for at := from; at.Before(to); at = at.Add(step) {
		for len(runs) > 0 && !runs[0].After(at) {
			runs = runs[1:]
		}
		if len(runs) == 0 { // the next run is beyond the stretch
			if next := schedule.Next(at); next.Before(to) {
				t.Fatalf("%s in %s: after %v comes %v, the walk finds none before %v", s.spec, zone, at, next, to)
			}
			return
		}
		if next := schedule.Next(at); !next.Equal(runs[0]) {
			t.Fatalf("%s in %s: after %v comes %v, the walk finds %v", s.spec, zone, at, next, runs[0])
		}
	}
}

// zones are the names of all zones that Go knows.
func zones(t *testing.T) []string {
	t.Helper()
	archive, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

// change is one move of the clocks, wherever it is made.
type change struct {
	at       time.Time
	from, to time.Duration
}

func (c change) compare(d change) int {
	return cmp.Or(c.at.Compare(d.at), cmp.Compare(c.from, d.from), cmp.Compare(c.to, d.to))
}

// changes are the moves of a zone's clocks in a stretch.
func changes(zone *time.Location, from, to time.Time) []change {
	var found []change
	for {
		_, end := from.In(zone).ZoneBounds()
		if end.IsZero() || !end.Before(to) {
			return found
		}
		found = append(found, change{end.UTC(), offsetAt(zone, end.Add(-time.Second)), offsetAt(zone, end)})
		from = end
	}
}

// long says whether everything is compared (make test-all), or a part.
func long() bool { return os.Getenv("HOLDFAST_LONG") != "" }

func TestAgainstMinuteByMinuteWalk(t *testing.T) {
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(2, 0, 0)
	where := map[change]string{}      // one zone for each move of the clocks
	behaviours := map[string]string{} // one zone for each sequence of them
	for _, name := range zones(t) {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		moves := changes(zone, from, to)
		for _, c := range moves {
			where[c] = name // the last in the archive's order
		}
		behaviours[fmt.Sprint(offsetAt(zone, from), moves)] = name
	}
	if len(where) < 100 || len(behaviours) < 50 {
		t.Fatalf("%d changes and %d behaviours in two years: zones are missing", len(where), len(behaviours))
	}
	t.Logf("%d changes of clocks, %d behaviours", len(where), len(behaviours))
	t.Run("each minute within three days of a change", func(t *testing.T) {
		for k, c := range slices.SortedFunc(maps.Keys(where), change.compare) {
			for i, s := range samples {
				if long() || (k+i)%3 == 0 {
					compare(t, s, where[c], c.at.AddDate(0, 0, -3), c.at.AddDate(0, 0, 3), time.Minute)
				}
			}
		}
	})
	t.Run("each hour elsewhere", func(t *testing.T) {
		for i, zone := range slices.Sorted(maps.Values(behaviours)) {
			for j, s := range samples {
				if long() || (i+j)%60 == 0 {
					compare(t, s, zone, from, to, time.Hour)
				}
			}
		}
	})
}
