package cron

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func must(t testing.TB, spec, zone string) *Schedule {
	t.Helper()
	s, err := Parse(spec, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		why        string
		spec, zone string
		after      string
		want       []string
	}{
		"plain":                     {"the fields are a wall clock's in the zone", "30 2 * * *", "Asia/Tokyo", "2027-05-01T00:00:00Z", []string{"2027-05-01T17:30:00Z", "2027-05-02T17:30:00Z"}},
		"no zone":                   {"no zone is UTC", "30 2 * * *", "", "2027-05-01T02:29:59.999Z", []string{"2027-05-01T02:30:00Z"}},
		"strictly after":            {"a run is not its own next", "30 2 * * *", "UTC", "2027-05-01T02:30:00Z", []string{"2027-05-02T02:30:00Z"}},
		"gap":                       {"what a gap swallows runs once, right after it", "30 2 * * *", "America/New_York", "2027-03-14T06:59:00Z", []string{"2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"}},
		"gap, many":                 {"all that it swallows is one run", "*/15 2 * * *", "America/New_York", "2027-03-14T06:59:00Z", []string{"2027-03-14T07:00:00Z", "2027-03-15T06:00:00Z"}},
		"gap, and due right after":  {"and that which is due anyway is the same run", "0 2,3 * * *", "America/New_York", "2027-03-14T06:59:00Z", []string{"2027-03-14T07:00:00Z", "2027-03-15T06:00:00Z"}},
		"gap, asked at its end":     {"the run after a gap is over once it was", "30 2 * * *", "America/New_York", "2027-03-14T07:00:00Z", []string{"2027-03-15T06:30:00Z"}},
		"gap, other day":            {"a gap swallows only what was due that day", "30 2 * * 1", "America/New_York", "2027-03-14T06:59:00Z", []string{"2027-03-15T06:30:00Z"}},
		"gap at midnight":           {"the day begins at one o'clock", "0 0 * * *", "Africa/Cairo", "2027-04-29T20:00:00Z", []string{"2027-04-29T22:00:00Z", "2027-04-30T21:00:00Z"}},
		"gap, first of a month":     {"a gap that swallows the day's only run", "15 0 30 4 *", "Africa/Cairo", "2027-04-29T20:00:00Z", []string{"2027-04-29T22:00:00Z", "2028-04-29T21:15:00Z"}},
		"half an hour's gap":        {"gaps are not always an hour", "15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00:00Z", []string{"2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"}},
		"overlap":                   {"a named hour runs in the first pass only", "30 1 * * *", "America/New_York", "2027-11-07T05:00:00Z", []string{"2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"}},
		"overlap, asked in between": {"also if asked in the second pass", "30 1 * * *", "America/New_York", "2027-11-07T05:30:00Z", []string{"2027-11-08T06:30:00Z"}},
		"overlap, range":            {"a range is named hours", "0 1-3 * * *", "America/New_York", "2027-11-07T04:59:00Z", []string{"2027-11-07T05:00:00Z", "2027-11-07T07:00:00Z", "2027-11-07T08:00:00Z"}},
		"every hour, gap":           {"an hour is an hour", "30 * * * *", "America/New_York", "2027-03-14T06:00:00Z", []string{"2027-03-14T06:30:00Z", "2027-03-14T07:30:00Z", "2027-03-14T08:30:00Z"}},
		"every hour, overlap":       {"in both passes", "30 * * * *", "America/New_York", "2027-11-07T05:00:00Z", []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-07T07:30:00Z"}},
		"0-23":                      {"all hours named are every hour", "30 0-23 * * *", "America/New_York", "2027-11-07T05:00:00Z", []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-07T07:30:00Z"}},
		"@hourly":                   {"so is the name for it", "@hourly", "America/New_York", "2027-11-07T04:59:00Z", []string{"2027-11-07T05:00:00Z", "2027-11-07T06:00:00Z", "2027-11-07T07:00:00Z"}},
		"every two hours, gap":      {"two hours after midnight it is three", "0 */2 * * *", "America/New_York", "2027-03-14T04:59:00Z", []string{"2027-03-14T05:00:00Z", "2027-03-14T07:00:00Z", "2027-03-14T08:00:00Z"}},
		"every two hours, overlap":  {"never more than two hours apart", "0 */2 * * *", "America/New_York", "2027-11-07T03:59:00Z", []string{"2027-11-07T04:00:00Z", "2027-11-07T06:00:00Z", "2027-11-07T07:00:00Z", "2027-11-07T09:00:00Z"}},
		"every 20 minutes, gap":     {"goes on as if nothing was", "*/20 * * * *", "America/New_York", "2027-03-14T06:39:00Z", []string{"2027-03-14T06:40:00Z", "2027-03-14T07:00:00Z", "2027-03-14T07:20:00Z"}},
		"every hour, Lord Howe":     {"half an hour moved: no two runs further apart than one hour", "0 * * * *", "Australia/Lord_Howe", "2027-10-02T14:29:00Z", []string{"2027-10-02T14:30:00Z", "2027-10-02T15:30:00Z", "2027-10-02T16:00:00Z"}},
		"leap day":                  {"29 February can be eight years away", "0 0 29 2 *", "", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		"either day":                {"as in every cron: a limited day of month or a limited day of week", "0 0 13 * 5", "", "2027-05-01T00:00:00Z", []string{"2027-05-07T00:00:00Z", "2027-05-13T00:00:00Z", "2027-05-14T00:00:00Z"}},
		"@weekly":                   {"weeks begin on Sunday", "@weekly", "", "2027-05-01T00:00:00Z", []string{"2027-05-02T00:00:00Z"}},
		"a zone that has no rules":  {"the span goes on for ever", "0 12 * * *", "Asia/Kolkata", "2500-01-01T00:00:00Z", []string{"2500-01-01T06:30:00Z"}},
		"before zones":              {"local mean time has seconds", "0 12 * * *", "America/New_York", "1800-01-01T00:00:00Z", []string{"1800-01-01T16:56:02Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := must(t, tc.spec, tc.zone)
			var got []string
			for _, next := range s.Upcoming(at(t, tc.after), len(tc.want)) {
				got = append(got, next.Format(time.RFC3339))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for spec, says := range map[string]string{
		"":                               "has 0 fields, want 5",
		"TZ=UTC":                         "begins with TZ=; take that out and name the zone in timeZone",
		"TZ=UTC 0 * * * *":               "begins with TZ=; take that out and name the zone in timeZone",
		"CRON_TZ=":                       "begins with CRON_TZ=",
		" CRON_TZ=a 0 * * * *":           "begins with CRON_TZ=",
		"0 0 30 2 *":                     `day of month "30" in month "2" is a day that no year has`,
		"0 0 31 4,6,9,11 *":              "is a day that no year has",
		"60 * * * *":                     `minute "60" is out of bounds`,
		"* 24 * * *":                     `hour "24" is out of bounds`,
		"* * 0 * *":                      `day of month "0" is out of bounds`,
		"* * * 13 *":                     `month "13" is out of bounds`,
		"* * * * 7":                      "allowed are 0 (Sunday) to 6 (Saturday)",
		"* * * * fri-mon":                `day of week "fri-mon" is out of bounds`,
		"0 0 * * * *":                    "there is no field for seconds, take it out",
		"* * * *":                        "has 4 fields, want 5",
		"@every 1h":                      "has no times of its own; write five fields",
		"@reboot":                        "is not a known name; allowed are @hourly",
		"*/0 * * * *":                    "has the step 0, want 1 to 60",
		"*/90 * * * *":                   "has the step 90, want 1 to 60",
		"*/99999999999999999999 * * * *": "has the step 99999999999999999999, want 1 to 60",
		"*-5 * * * *":                    `cannot be read at "*-5"`,
		", * * * *":                      `minute "," cannot be read at ""`,
		"1,,2 * * * *":                   `cannot be read at ""`,
		"+5 * * * *":                     `cannot be read at "+5"`,
		"-1 * * * *":                     `cannot be read at "-1"`,
		"0 0 L * *":                      `day of month "L" is out of bounds`,
		"0 0 1W * *":                     `day of month "1W"`,
		"0 0 * * 1#2":                    `cannot be read at "1#2"`,
	} {
		_, err := Parse(spec, "UTC")
		var problem *Error
		if !errors.As(err, &problem) {
			t.Errorf("%q: error %v, want one of type *Error", spec, err)
			continue
		}
		if problem.Field != FieldSchedule || problem.Value != spec || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: refused with %v, want it to say %q", spec, err, says)
		}
	}
	for zone, says := range map[string]string{
		"Mars/Olympus":  "is not a known time zone; give an IANA name",
		"../etc/passwd": "is not a known time zone",
		"Local":         "whichever machine",
		"Europe":        "is not a known time zone",
	} {
		_, err := Parse("0 * * * *", zone)
		var problem *Error
		if !errors.As(err, &problem) || problem.Field != FieldTimeZone || problem.Value != zone || !strings.Contains(err.Error(), says) {
			t.Errorf("zone %q: refused with %v, want it to say %q", zone, err, says)
		}
	}
}

func TestLatestAndMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		why          string
		spec         string
		after, until string
		latest       string // empty: none
		missed       int
	}{
		"C05":              {"an outage from 02:55 to 07:20", "0 * * * *", "2027-05-01T02:00:00Z", "2027-05-01T07:20:00Z", "2027-05-01T07:00:00Z", 5},
		"both ends":        {"what is due at the first instant is over, at the last it is due", "0 * * * *", "2027-05-01T02:00:00Z", "2027-05-01T03:00:00Z", "2027-05-01T03:00:00Z", 1},
		"none":             {"nothing is due between two runs", "0 * * * *", "2027-05-01T02:00:00Z", "2027-05-01T02:59:59Z", "", 0},
		"no time":          {"nor in no time", "* * * * *", "2027-05-01T02:00:00Z", "2027-05-01T02:00:00Z", "", 0},
		"backwards":        {"nor in time that runs back", "* * * * *", "2027-05-01T02:00:00Z", "2026-05-01T02:00:00Z", "", 0},
		"ten years":        {"counted to 100, the latest is the latest", "* * * * *", "2017-05-01T02:00:00Z", "2027-05-01T02:00:30Z", "2027-05-01T02:00:00Z", 100},
		"long ago":         {"found also behind eleven months without", "* * * 1 *", "2017-05-01T02:00:00Z", "2027-12-31T00:00:00Z", "2027-01-31T23:59:00Z", 100},
		"leap days":        {"and behind seven years", "0 0 29 2 *", "2090-05-01T02:00:00Z", "2103-12-31T00:00:00Z", "2096-02-29T00:00:00Z", 2},
		"last before gap":  {"a gap's run counts", "30 2 * * *", "2027-05-01T02:30:00Z", "2027-05-03T02:30:00Z", "2027-05-03T02:30:00Z", 2},
		"a second too few": {"bounds are exact", "30 2 * * *", "2027-05-01T02:30:00Z", "2027-05-03T02:29:59Z", "2027-05-02T02:30:00Z", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := must(t, tc.spec, "UTC")
			latest, ok := s.Latest(at(t, tc.after), at(t, tc.until))
			if got := latest.Format(time.RFC3339); ok != (tc.latest != "") || ok && got != tc.latest {
				t.Errorf("%s: latest %s %t, want %q", tc.why, got, ok, tc.latest)
			}
			if n := s.Missed(at(t, tc.after), at(t, tc.until)); n != tc.missed {
				t.Errorf("%s: %d missed, want %d", tc.why, n, tc.missed)
			}
		})
	}
}

func TestInterval(t *testing.T) {
	for name, tc := range map[string]struct {
		why, spec, at string
		want          time.Duration
	}{
		"hourly":              {"an hour", "0 * * * *", "2027-05-05T10:30:00Z", time.Hour},
		"in the night":        {"the night is the stretch that we are in", "0 9-17 * * *", "2027-05-05T20:00:00Z", 16 * time.Hour},
		"after the first run": {"the run after the night gets its hour", "0 9-17 * * *", "2027-05-06T09:30:00Z", 16 * time.Hour},
		"after the second":    {"then hours count", "0 9-17 * * *", "2027-05-06T10:00:00Z", time.Hour},
		"leap years":          {"29 February in 2096 and 2104", "0 0 29 2 *", "2100-01-01T00:00:00Z", 2921 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got := must(t, tc.spec, "UTC").Interval(at(t, tc.at)); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.why, got, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range [][2]string{
		{"30 2 * * *", "America/New_York"}, {"TZ=x", ""}, {"CRON_TZ=", "UTC"}, {"0 0 30 2 *", "UTC"}, {"@every 1ns", ""},
		{"*/7 */5 */3 feb,mar mon-fri/2", "Australia/Lord_Howe"}, {"0 0 29 2 *", "Africa/Casablanca"}, {"? ? ? ? ?", "Pacific/Apia"},
		{"@hourly", "Europe/Dublin"}, {"1-59/60 0-23 31 * sun", "Antarctica/Troll"}, {", , , , ,", "posix/UTC"},
	} {
		f.Add(seed[0], seed[1], int64(1803945600))
		f.Add(seed[0], seed[1], int64(-4e9))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, unix int64) {
		s, err := Parse(spec, zone)
		if err != nil {
			var problem *Error
			if !errors.As(err, &problem) || problem.Problem == "" {
				t.Fatalf("error %v is no *Error that says what is wrong", err)
			}
			return
		}
		const thousandYears = 31556952000
		after := time.Unix(unix%thousandYears, 0)
		next := s.Next(after)
		if !next.After(after) || next.Sub(after) > longestGap {
			t.Fatalf("after %v comes %v", after, next)
		}
		if latest, ok := s.Latest(after, next); !ok || !latest.Equal(next) {
			t.Fatalf("the latest until %v is %v %t", next, latest, ok)
		}
		if latest, ok := s.Latest(after, next.Add(-time.Nanosecond)); ok {
			t.Fatalf("after %v comes %v before %v", after, latest, next)
		}
	})
}

// TestFarYears: time itself goes wrong on the last day of leap years that are past
// the table of a zone, 2040 or, where tables are short, sooner. Runs go on.
func TestFarYears(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Auckland", "Asia/Tokyo"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for spec, months := range map[string]int{"0 12 1 * *": 1, "0 12 1 1 *": 12} {
			s, err := Parse(spec, zone)
			if err != nil {
				t.Fatal(err)
			}
			upcoming := make(chan []time.Time, 1)
			go func() { upcoming <- s.Upcoming(time.Date(2026, 12, 15, 0, 0, 0, 0, time.UTC), 400) }()
			select {
			case times := <-upcoming:
				for i, at := range times {
					if want := time.Date(2027, time.Month(1+i*months), 1, 12, 0, 0, 0, location); !at.Equal(want) {
						t.Fatalf("%q in %s: run %d is at %v, want %v", spec, zone, i, at, want.UTC())
					}
				}
			case <-time.After(time.Minute):
				t.Fatalf("%q in %s: it does not come back", spec, zone)
			}
		}
		daily, err := Parse("0 12 * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, year := range []int{2040, 2044, 2096} {
			at := time.Date(year, 12, 28, 12, 0, 0, 0, location)
			for day := 29; day < 40; day++ {
				if at = daily.Next(at); !at.Equal(time.Date(year, 12, day, 12, 0, 0, 0, location)) {
					t.Errorf("%s: on 28 December %d and %d days it runs at %v", zone, year, day-28, at)
				}
			}
		}
	}
}
