package cron

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // images without /usr/share/zoneinfo know all zones too

	robfig "github.com/robfig/cron/v3"
)

// The fields of a SnapshotSchedule that an Error is about.
const (
	FieldSchedule = "schedule"
	FieldTimeZone = "timeZone"
)

// Error says what is wrong with a schedule or its time zone.
type Error struct {
	// Field is FieldSchedule or FieldTimeZone.
	Field string
	// Value is what was found there.
	Value string
	// Problem says what is wrong, what is allowed and what to do.
	Problem string
}

// Error is one line with all of it.
func (e *Error) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Problem) }

// Schedule is a set of instants. It is never changed, and any number of
// goroutines may ask it.
type Schedule struct {
	// wall is matched against wall clocks, which are written as if they were
	// times in UTC.
	wall *robfig.SpecSchedule
	zone *time.Location
	// elapsed: the hours are * or */n.
	elapsed bool
}

// descriptors are the names for schedules, in five fields. There is no @every:
// its runs would be counted from the start of a process, so that a restart or
// another leader would move them.
var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// column is one field of a schedule.
type column struct {
	name    string
	option  robfig.ParseOption
	values  int // how many there are
	allowed string
}

var columns = [...]column{
	{"minute", robfig.Minute, 60, "0 to 59"},
	{"hour", robfig.Hour, 24, "0 to 23"},
	{"day of month", robfig.Dom, 31, "1 to 31"},
	{"month", robfig.Month, 12, "1 to 12 or jan to dec"},
	{"day of week", robfig.Dow, 7, "0 (Sunday) to 6 (Saturday) or sun to sat"},
}

// element is one part of a comma-separated field.
var element = regexp.MustCompile(`^(?:[*?]|[0-9A-Za-z]+(?:-[0-9A-Za-z]+)?)(?:/([0-9]+))?$`)

// Parse reads a schedule and the name of its time zone (IANA, such as
// Asia/Tokyo; empty is UTC). Its errors are of type *Error. A Schedule that it
// answers is due again and again, for ever.
func Parse(spec, zone string) (*Schedule, error) {
	location, err := loadZone(zone)
	if err != nil {
		return nil, err
	}
	fields, err := split(spec)
	if err != nil {
		return nil, err
	}
	for i, c := range columns {
		if problem := c.problem(fields[i]); problem != "" {
			return nil, refuse(spec, "%s %q %s; allowed are %s, *, lists (1,2), ranges (1-5) and steps (*/2)", c.name, fields[i], problem, c.allowed)
		}
	}
	parsed, err := robfig.NewParser(robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow).Parse(strings.Join(fields, " "))
	wall, ok := parsed.(*robfig.SpecSchedule)
	if err != nil || !ok {
		return nil, refuse(spec, "%v", err)
	}
	wall.Location = time.UTC
	if _, ok := nextWall(wall, wallEpoch); !ok {
		return nil, refuse(spec, "day of month %q in month %q is a day that no year has: it would never run; name a day that exists", fields[2], fields[3])
	}
	return &Schedule{wall: wall, zone: location, elapsed: followsElapsedTime(fields[1], wall.Hour)}, nil
}

func refuse(spec, problem string, args ...any) error {
	return &Error{Field: FieldSchedule, Value: spec, Problem: fmt.Sprintf(problem, args...)}
}

// loadZone finds a time zone by its name. That of the machine is none: it is
// not the same everywhere.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, &Error{FieldTimeZone, name, "would be the zone of whichever machine the manager runs on; name a zone such as Europe/Berlin or UTC"}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &Error{FieldTimeZone, name, "is not a known time zone; give an IANA name such as Europe/Berlin, Asia/Tokyo or UTC (https://www.iana.org/time-zones), in its capitals"}
	}
	return zone, nil
}

// split answers the five fields of a schedule.
func split(spec string) ([]string, error) {
	trimmed := strings.TrimSpace(spec)
	if prefix, _, found := strings.Cut(trimmed, "="); found && strings.HasSuffix(strings.ToUpper(prefix), "TZ") {
		return nil, refuse(spec, "begins with %s=; take that out and name the zone in %s", prefix, FieldTimeZone)
	}
	if strings.HasPrefix(trimmed, "@") {
		fields, ok := descriptors[trimmed]
		switch {
		case ok:
			return strings.Fields(fields), nil
		case strings.HasPrefix(trimmed, "@every"):
			return nil, refuse(spec, "@every counts from the start of a process and has no times of its own; write five fields, such as */15 * * * * for every 15 minutes")
		}
		return nil, refuse(spec, "is not a known name; allowed are @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or five fields such as 30 2 * * *")
	}
	fields := strings.Fields(trimmed)
	switch len(fields) {
	case len(columns):
		return fields, nil
	case len(columns) + 1:
		return nil, refuse(spec, "has 6 fields, want 5: minute, hour, day of month, month, day of week; there is no field for seconds, take it out")
	}
	return nil, refuse(spec, "has %d fields, want 5: minute, hour, day of month, month, day of week, such as 30 2 * * *", len(fields))
}

// problem says what is wrong with one field; empty: nothing.
func (c column) problem(field string) string {
	for _, part := range strings.Split(field, ",") {
		match := element.FindStringSubmatch(part)
		if match == nil {
			return fmt.Sprintf("cannot be read at %q", part)
		}
		if step, err := strconv.Atoi(match[1]); match[1] != "" && (err != nil || step < 1 || step > c.values) {
			return fmt.Sprintf("has the step %s, want 1 to %d", match[1], c.values)
		}
	}
	if _, err := robfig.NewParser(c.option).Parse(field); err != nil {
		return fmt.Sprintf("is out of bounds: %v", err)
	}
	return ""
}

// followsElapsedTime says whether the hours are *, */n, or all there are.
func followsElapsedTime(field string, hours uint64) bool {
	const all = 1<<24 - 1
	if hours&all == all {
		return true
	}
	for _, part := range strings.Split(field, ",") {
		if !strings.HasPrefix(part, "*") && !strings.HasPrefix(part, "?") {
			return false
		}
	}
	return true
}
