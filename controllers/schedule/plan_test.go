package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

// today is an instant of the day that the tests play on.
func today(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2027-05-05 "+text)
	if err != nil {
		panic(err)
	}
	return t
}

// play is a schedule, its claims and copies, in a cluster that does what a plan says.
type play struct {
	t      *testing.T
	seen   Observed
	limits Limits
	log    []string // what was asked for: claim, slot, time
	// refuse refuses the creation of copies of these claims.
	refuse map[string]bool
	// readyAfter makes copies ready this long after they were asked for; 0: never.
	readyAfter time.Duration
}

func newPlay(t *testing.T, spec v1alpha1.SnapshotScheduleSpec, created string, claims ...string) *play {
	t.Helper()
	if spec.StartingDeadlineSeconds == 0 {
		spec.StartingDeadlineSeconds = 3600
	}
	if spec.ReadyDeadlineSeconds == 0 {
		spec.ReadyDeadlineSeconds = 86400
	}
	p := &play{t: t, limits: Limits{Cluster: 1000, Class: 1000}, refuse: map[string]bool{}, readyAfter: time.Second}
	p.seen = Observed{Namespace: "db", Name: "hourly", UID: "schedule-uid", Created: today(created), Spec: spec}
	for _, name := range claims {
		p.claim(name, "00:00:00")
	}
	return p
}

func (p *play) claim(name, created string) {
	p.seen.Candidates = append(p.seen.Candidates, Candidate{
		Driver: "csi.example.com", Class: "snap",
		Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(today(created))}},
	})
}

// edit changes the spec as a user does.
func (p *play) edit(change func(*v1alpha1.SnapshotScheduleSpec)) { change(&p.seen.Spec) }

// look decides once, does what the plan says and remembers.
func (p *play) look(at string) Plan { return p.lookAt(today(at), 1<<30) }

// lookAt does the same, but dies after some creations, before it remembers.
func (p *play) lookAt(now time.Time, dieAfter int) Plan {
	p.t.Helper()
	s, err := cron.Parse(p.seen.Spec.Schedule, p.seen.Spec.TimeZone)
	if err != nil {
		p.t.Fatal(err)
	}
	p.seen.Cron = s
	for i := range p.seen.Copies {
		c := &p.seen.Copies[i]
		switch {
		case p.readyAfter > 0 && now.Sub(c.Asked) >= p.readyAfter:
			c.State = copies.Ready
		case !now.Before(c.Deadline):
			c.State = copies.Failed
		}
	}
	plan := Decide(now, p.seen, p.limits)
	for _, s := range plan.Create {
		claim := *s.Spec.Source.PersistentVolumeClaimName
		if p.refuse[claim] {
			continue
		}
		if dieAfter--; dieAfter < 0 {
			return plan
		}
		if slices.ContainsFunc(p.seen.Copies, func(c copies.Copy) bool { return c.Name == s.Name }) {
			p.t.Errorf("%s is asked for twice", s.Name)
		}
		p.seen.Copies = append(p.seen.Copies, copies.Copy{
			Name: s.Name, ClaimUID: types.UID(s.Labels[v1alpha1.LabelClaimUID]), Slot: s.Labels[v1alpha1.LabelSlot],
			Asked: now, Deadline: now.Add(time.Duration(p.seen.Spec.ReadyDeadlineSeconds) * time.Second),
		})
		p.log = append(p.log, fmt.Sprintf("%s %s at %s", claim, s.Labels[v1alpha1.LabelSlot], now.Format("15:04")))
	}
	st := &p.seen.Status
	st.ActiveSince, st.ObservedScheduleHash = &metav1.Time{Time: plan.ActiveSince}, plan.ScheduleHash
	if !plan.LastScheduleTime.IsZero() {
		st.LastScheduleTime = &metav1.Time{Time: plan.LastScheduleTime}
	}
	st.MissedSlots, st.LastRunToken, st.NextScheduleTime = plan.MissedSlots, plan.LastRunToken, moment(plan.NextScheduleTime)
	return plan
}

// every looks each minute of a stretch.
func (p *play) every(from, to string) {
	for t := today(from); !t.After(today(to)); t = t.Add(time.Minute) {
		p.lookAt(t, 1<<30)
	}
}

func (p *play) want(why string, want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.log); diff != "" {
		p.t.Errorf("%s (-want +got)\n%s", why, diff)
	}
}

func hourly() v1alpha1.SnapshotScheduleSpec {
	return v1alpha1.SnapshotScheduleSpec{Schedule: "0 * * * *"}
}

func TestC03NothingFiresOnCreateEditResume(t *testing.T) {
	p := newPlay(t, hourly(), "10:07:00", "a")
	p.every("10:07:00", "10:39:00")
	p.edit(func(s *v1alpha1.SnapshotScheduleSpec) { s.Schedule = "30 * * * *" })
	p.every("10:40:00", "10:59:00")
	p.edit(func(s *v1alpha1.SnapshotScheduleSpec) { s.Suspend = true })
	p.every("11:00:00", "12:09:00")
	p.edit(func(s *v1alpha1.SnapshotScheduleSpec) { s.Suspend = false })
	p.every("12:10:00", "12:29:00")
	p.want("nothing at creation, edit, suspension and resumption")
	p.every("12:30:00", "13:20:00")
	p.want("the next run is the first", "a 20270505T123000Z at 12:30")
	if n := p.seen.Status.MissedSlots; n != 0 {
		t.Errorf("%d runs missed: what was due while suspended was not", n)
	}
}

func TestC03OverARestart(t *testing.T) {
	p := newPlay(t, hourly(), "10:07:00", "a")
	p.look("10:08:00")
	// The manager is down from here on, and the edit is seen late.
	p.edit(func(s *v1alpha1.SnapshotScheduleSpec) { s.TimeZone = "Asia/Kolkata" }) // 30 minutes past
	p.look("11:45:00")
	p.want("an edit that is seen late resumes from then on")
	p.look("12:30:00")
	p.want("by the new zone", "a 20270505T123000Z at 12:30")
}

func TestActiveSinceCreationAlsoIfSeenLate(t *testing.T) {
	p := newPlay(t, hourly(), "10:07:00", "a")
	p.look("11:10:00")
	p.want("what was due since creation is made up for", "a 20270505T110000Z at 11:10")
}

func TestC04KilledLeader(t *testing.T) {
	var claims []string
	for i := range 10 {
		claims = append(claims, fmt.Sprint("data-", i))
	}
	p := newPlay(t, hourly(), "10:07:00", claims...)
	p.look("10:08:00")
	first := p.lookAt(today("11:00:00"), 3) // killed before it remembers
	if len(first.Create) != 10 || len(p.log) != 3 {
		t.Fatalf("%d asked for, %d made before the end", len(first.Create), len(p.log))
	}
	p.lookAt(today("11:00:20"), 4)
	p.look("11:00:40")
	if len(p.seen.Copies) != 10 {
		t.Fatalf("%d copies, want 10", len(p.seen.Copies))
	}
	for _, s := range first.Create {
		if !slices.ContainsFunc(p.seen.Copies, func(c copies.Copy) bool { return c.Name == s.Name }) {
			t.Errorf("the next leader did not ask for %s", s.Name)
		}
	}
	if p.seen.Status.LastScheduleTime != nil {
		t.Errorf("the run is over at %v before all copies were seen", p.seen.Status.LastScheduleTime)
	}
	for _, at := range []string{"11:00:41", "11:01:00", "11:59:59"} {
		p.look(at)
		if got := p.seen.Status.LastScheduleTime; got == nil || !got.Time.Equal(today("11:00:00")) {
			t.Errorf("lastScheduleTime is %v at %s", got, at)
		}
	}
	if len(p.log) != 10 || p.seen.Status.MissedSlots != 0 {
		t.Errorf("%d copies, %d missed", len(p.log), p.seen.Status.MissedSlots)
	}
}

func TestC05Outage(t *testing.T) {
	spec := hourly()
	spec.StartingDeadlineSeconds = 1800
	p := newPlay(t, spec, "01:30:00", "a")
	p.every("01:30:00", "02:54:00")
	plan := p.look("07:20:00")
	p.want("the newest run is made up for, under its own name", "a 20270505T020000Z at 02:00", "a 20270505T070000Z at 07:20")
	if plan.Missed != 4 || p.seen.Status.MissedSlots != 4 || !plan.NewestMissed.Equal(today("06:00:00")) || !plan.NextScheduleTime.Equal(today("08:00:00")) {
		t.Errorf("missed %d (%d in all) until %v, next %v; want 4 until 06:00, next 08:00", plan.Missed, p.seen.Status.MissedSlots, plan.NewestMissed, plan.NextScheduleTime)
	}
	plan = p.look("07:20:10")
	if plan.Missed != 0 || p.seen.Status.MissedSlots != 4 || !p.seen.Status.LastScheduleTime.Time.Equal(today("07:00:00")) {
		t.Errorf("then %d more missed, %d in all, last %v", plan.Missed, p.seen.Status.MissedSlots, p.seen.Status.LastScheduleTime)
	}
}

func TestMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		spec   func(*v1alpha1.SnapshotScheduleSpec)
		claims []string
		back   string // the manager is back at
		log    []string
		missed int32
	}{
		"past the deadline":       {"too late is missed", func(s *v1alpha1.SnapshotScheduleSpec) { s.StartingDeadlineSeconds = 1200 }, []string{"a"}, "07:20:01", nil, 5},
		"at the deadline":         {"the deadline is still in time", func(s *v1alpha1.SnapshotScheduleSpec) { s.StartingDeadlineSeconds = 1200 }, []string{"a"}, "07:20:00", []string{"a 20270505T070000Z at 07:20"}, 4},
		"catchUp None":            {"nothing is made up for", func(s *v1alpha1.SnapshotScheduleSpec) { s.CatchUp = v1alpha1.CatchUpNone }, []string{"a"}, "07:20:00", nil, 5},
		"catchUp None, a restart": {"a minute is no outage", func(s *v1alpha1.SnapshotScheduleSpec) { s.CatchUp = v1alpha1.CatchUpNone }, []string{"a"}, "03:01:00", []string{"a 20270505T030000Z at 03:01"}, 0},
		"no claims":               {"where there was nothing to copy nothing was missed", func(*v1alpha1.SnapshotScheduleSpec) {}, nil, "07:20:00", nil, 0},
		"many":                    {"counted to 100", func(s *v1alpha1.SnapshotScheduleSpec) { s.Schedule = "* * * * *" }, []string{"a"}, "07:20:00", []string{"a 20270505T072000Z at 07:20"}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			spec := hourly()
			tc.spec(&spec)
			p := newPlay(t, spec, "02:54:50", tc.claims...)
			p.look("02:54:55")
			p.look(tc.back)
			p.lookAt(today(tc.back).Add(time.Second), 1<<30)
			p.want(tc.why, tc.log...)
			if p.seen.Status.MissedSlots != tc.missed {
				t.Errorf("%s: %d missed, want %d", tc.why, p.seen.Status.MissedSlots, tc.missed)
			}
		})
	}
}

func TestClockThatGoesBack(t *testing.T) {
	p := newPlay(t, hourly(), "08:30:00", "a")
	p.every("08:30:00", "10:10:00")
	if next := p.look("08:40:00").NextScheduleTime; !next.Equal(today("11:00:00")) { // an hour and a half back
		t.Errorf("the next run is that of %v, want the first that did not run yet", next)
	}
	p.every("08:41:00", "10:40:00")
	p.want("no run again", "a 20270505T090000Z at 09:00", "a 20270505T100000Z at 10:00")
	p.every("10:41:00", "11:10:00")
	if len(p.log) != 3 || p.seen.Status.MissedSlots != 0 {
		t.Errorf("%v, %d missed: want the run of 11:00 after it", p.log, p.seen.Status.MissedSlots)
	}
}

func TestC07SlowReady(t *testing.T) {
	p := newPlay(t, hourly(), "00:30:00", "a")
	p.readyAfter = 90 * time.Minute
	for at := today("00:30:00"); at.Before(today("06:00:00")); at = at.Add(time.Minute) {
		p.lookAt(at, 1<<30)
		making := 0
		for _, c := range p.seen.Copies {
			if c.State == copies.Making {
				making++
			}
		}
		if making > 1 {
			t.Fatalf("%d copies in the making at %v under Forbid", making, at)
		}
	}
	p.want("the next one begins when the one before is ready, while its run is the newest",
		"a 20270505T010000Z at 01:00", "a 20270505T020000Z at 02:30", "a 20270505T040000Z at 04:00", "a 20270505T050000Z at 05:30")
	p = newPlay(t, hourly(), "00:30:00", "a")
	p.seen.Spec.ConcurrencyPolicy = v1alpha1.AllowConcurrent
	p.readyAfter = 90 * time.Minute
	p.every("00:30:00", "02:10:00")
	p.want("Allow does not wait", "a 20270505T010000Z at 01:00", "a 20270505T020000Z at 02:00")
	p = newPlay(t, hourly(), "00:30:00", "a")
	p.seen.Spec.ReadyDeadlineSeconds, p.readyAfter = 1800, 0
	p.every("00:30:00", "02:10:00")
	p.want("one that failed stands in nobody's way", "a 20270505T010000Z at 01:00", "a 20270505T020000Z at 02:00")
}

func TestOneClaimDoesNotStopTheOthers(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a", "b")
	p.refuse["a"] = true
	p.every("10:30:00", "11:20:00")
	p.want("what is refused is tried again, the other has its copy", "b 20270505T110000Z at 11:00")
	delete(p.refuse, "a")
	p.every("11:21:00", "11:22:00")
	p.want("until it passes", "b 20270505T110000Z at 11:00", "a 20270505T110000Z at 11:21")
}

func TestCatchUpNoneGoesOnWithWhatItBegan(t *testing.T) {
	spec := hourly()
	spec.CatchUp = v1alpha1.CatchUpNone
	p := newPlay(t, spec, "10:30:00", "a", "b")
	p.look("10:31:00")
	p.lookAt(today("11:00:00"), 1) // killed after the first
	p.look("11:20:00")
	p.want("a run that began is not made up for, it is gone on with", "a 20270505T110000Z at 11:00", "b 20270505T110000Z at 11:20")
}

// A run that is held up was looked at when it was due. It waits within
// startingDeadlineSeconds, as with catchUp Latest; nobody has missed it.
func TestCatchUpNoneWaitsForWhatStandsInTheWay(t *testing.T) {
	spec := hourly()
	spec.CatchUp = v1alpha1.CatchUpNone
	p := newPlay(t, spec, "09:30:00", "a")
	p.readyAfter = 65 * time.Minute // under Forbid
	p.every("09:30:00", "11:10:00")
	p.want("the run of 11:00 waits for the copy before it", "a 20270505T100000Z at 10:00", "a 20270505T110000Z at 11:05")
	if n := p.seen.Status.MissedSlots; n != 0 {
		t.Errorf("%d runs are counted as missed", n)
	}
}

func TestARunWithSomeCopiesIsNotMissed(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a", "b")
	p.refuse["a"] = true
	p.every("10:30:00", "12:10:00")
	if n := p.seen.Status.MissedSlots; n != 0 {
		t.Errorf("%d runs missed, though each has the copy of b", n)
	}
}

func TestForbidDoesNotWaitForWhatIsBeingDeleted(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a")
	p.readyAfter = 0
	p.every("10:30:00", "11:30:00")
	p.seen.Copies[0].Deleting = true
	p.every("11:31:00", "12:00:00")
	p.want("it will never be ready", "a 20270505T110000Z at 11:00", "a 20270505T120000Z at 12:00")
}

func TestClaimsMadeLater(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a")
	p.look("11:00:00")
	p.claim("new", "11:05:00")
	p.every("11:06:00", "12:00:00")
	p.want("a claim has no part in runs from before it", "a 20270505T110000Z at 11:00", "new 20270505T120000Z at 12:00", "a 20270505T120000Z at 12:00")
}

func TestJitterSpreadsClaims(t *testing.T) {
	spec := hourly()
	spec.JitterSeconds = 7200 // half of an hour at most
	var claims []string
	for i := range 40 {
		claims = append(claims, fmt.Sprint("c", i))
	}
	p := newPlay(t, spec, "10:30:00", claims...)
	p.every("10:30:00", "11:29:00")
	minutes := map[string]bool{}
	for _, line := range p.log {
		minutes[line[strings.Index(line, " at "):]] = true
		if !strings.Contains(line, " 20270505T110000Z ") {
			t.Errorf("%s: jitter is no part of the slot", line)
		}
	}
	if p.every("11:30:00", "11:30:00"); len(p.log) != 40 || len(minutes) < 15 {
		t.Errorf("%d claims in %d minutes within half an hour, want all 40, spread", len(p.log), len(minutes))
	}
	again := newPlay(t, spec, "10:30:00", claims...)
	again.every("10:30:00", "11:30:00")
	if diff := cmp.Diff(p.log, again.log); diff != "" {
		t.Errorf("another leader spreads them otherwise:\n%s", diff)
	}
	plan := newPlay(t, spec, "10:30:00", claims...).look("11:00:00")
	if plan.NextLook.IsZero() || plan.NextLook.After(today("11:05:00")) {
		t.Errorf("looks again at %v, want at the next claim's place", plan.NextLook)
	}
}

func TestCaps(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		set  func(*play)
		want int // copies asked for of 4 claims
		says string
		look time.Duration
	}{
		"none":        {"all at once", func(*play) {}, 4, "", time.Hour},
		"cluster":     {"what others ask for counts", func(p *play) { p.limits.Cluster, p.seen.Load.Cluster = 5, 3 }, 2, "5 copies in the cluster", lookAgain},
		"class":       {"for each class", func(p *play) { p.limits.Class, p.seen.Load.Class = 3, map[string]int{"snap": 2} }, 1, "3 copies of VolumeSnapshotClass snap", lookAgain},
		"other class": {"not for others", func(p *play) { p.limits.Class, p.seen.Load.Class = 4, map[string]int{"other": 4} }, 4, "", time.Hour},
		"volume, often": {"one in 15 seconds", func(p *play) {
			p.limits.Volume = map[string]VolumeLimit{"csi.example.com": {Every: 15 * time.Second, Pending: 5}}
			p.seen.Volumes = map[types.UID]VolumeLoad{"b": {Pending: 1, LastAsked: today("10:59:50")}, "c": {LastAsked: today("10:59:45")}}
		}, 3, "begins one copy of a volume in 15s", 5 * time.Second},
		"volume, many": {"five in the making", func(p *play) {
			p.limits.Volume = map[string]VolumeLimit{"csi.example.com": {Every: 15 * time.Second, Pending: 5}}
			p.seen.Volumes = map[types.UID]VolumeLoad{"b": {Pending: 5, LastAsked: today("10:00:00")}}
		}, 3, "5 copies of the volume are being made", lookAgain},
		"volume, other driver": {"no limit of EBS for others", func(p *play) {
			p.limits = DefaultLimits()
			p.seen.Volumes = map[types.UID]VolumeLoad{"b": {Pending: 5, LastAsked: today("10:59:59")}}
		}, 4, "", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, hourly(), "10:30:00", "a", "b", "c", "d")
			tc.set(p)
			// Without looking at deadlines, so that the next look is the cap's.
			p.seen.Spec.StartingDeadlineSeconds = 7200
			before := p.seen.Load.Class["snap"]
			plan := p.look("11:00:00")
			if len(plan.Create) != tc.want || len(plan.Waiting) != 4-tc.want {
				t.Fatalf("%s: %d asked for, %d wait; want %d of 4", tc.why, len(plan.Create), len(plan.Waiting), tc.want)
			}
			if tc.says != "" && !strings.Contains(plan.Waiting[0].Message, tc.says) {
				t.Errorf("%s: waits since %q, want %q", tc.why, plan.Waiting[0].Message, tc.says)
			}
			if got := plan.NextLook.Sub(today("11:00:00")); got != tc.look {
				t.Errorf("%s: looks again in %v, want %v", tc.why, got, tc.look)
			}
			if p.seen.Load.Class["snap"] != before {
				t.Error("the plan changed what it was given")
			}
		})
	}
}

func TestRunNow(t *testing.T) {
	p := newPlay(t, hourly(), "10:07:00", "a", "b")
	p.seen.Spec.Suspend = true
	p.look("10:10:00")
	p.seen.RunToken = "before upgrade"
	p.refuse["b"] = true
	p.look("10:20:00")
	run := copies.RunOf("before upgrade")
	if p.seen.Status.LastRunToken != "" {
		t.Error("a run by hand is over before all have their copy")
	}
	delete(p.refuse, "b")
	p.look("10:25:00")
	p.look("10:26:00")
	p.want("at once, also while suspended, until each has its copy", "a "+run+" at 10:20", "b "+run+" at 10:25")
	if p.seen.Status.LastRunToken != "before upgrade" || p.seen.Status.LastScheduleTime != nil {
		t.Errorf("token %q, last run %v", p.seen.Status.LastRunToken, p.seen.Status.LastScheduleTime)
	}
	p.look("10:30:00")
	if len(p.log) != 2 {
		t.Errorf("the same token ran again: %v", p.log)
	}
	p.seen.RunToken = "once more"
	p.look("10:40:00")
	if len(p.log) != 4 {
		t.Errorf("another token did not run: %v", p.log)
	}
}

func TestForbidHoldsWithinOnePass(t *testing.T) {
	p := newPlay(t, hourly(), "10:07:00", "a")
	p.readyAfter = 5 * time.Minute
	p.look("10:10:00")
	p.seen.RunToken = "now"
	plan := p.look("11:00:00")
	if len(plan.Create) != 1 || len(plan.Waiting) != 1 {
		t.Errorf("%d asked for, %d wait: a run by hand and one by schedule at once are two copies of a claim", len(plan.Create), len(plan.Waiting))
	}
	p.every("11:01:00", "11:10:00")
	p.want("one after the other", "a "+copies.RunOf("now")+" at 11:00", "a 20270505T110000Z at 11:05")
}

func TestLooksAgainWhenTimeRunsOut(t *testing.T) {
	spec := hourly()
	spec.StartingDeadlineSeconds = 600
	p := newPlay(t, spec, "10:07:00", "a")
	p.refuse["a"] = true
	if plan := p.look("11:00:00"); !plan.NextLook.Equal(today("11:10:00").Add(time.Nanosecond)) {
		t.Errorf("looks again at %v, want when the deadline is over", plan.NextLook)
	}
	spec.ReadyDeadlineSeconds = 3660
	p = newPlay(t, spec, "10:07:00", "a")
	p.readyAfter = 0
	p.every("10:07:00", "11:01:00")
	if plan := p.look("12:00:00"); len(plan.Waiting) != 1 || !plan.NextLook.Equal(today("12:01:00")) {
		t.Errorf("%d wait, looks again at %v, want when the copy before has failed", len(plan.Waiting), plan.NextLook)
	}
}

func TestSnapshot(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "data-pg-0")
	p.seen.Name = strings.Repeat("nightly-", 12)
	p.seen.Spec.Template = v1alpha1.SnapshotTemplate{
		Labels:      map[string]string{"team": "db"},
		Annotations: map[string]string{"why": "cron"},
	}
	s := p.look("11:00:00").Create[0]
	wantLabels := map[string]string{"team": "db", v1alpha1.LabelSchedule: copies.LabelValue(p.seen.Name), v1alpha1.LabelClaimUID: "data-pg-0", v1alpha1.LabelSlot: "20270505T110000Z"}
	if diff := cmp.Diff(wantLabels, s.Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"why": "cron", v1alpha1.AnnotationClaim: "data-pg-0"}, s.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
	if len(p.seen.Spec.Template.Labels) != 1 || len(p.seen.Spec.Template.Annotations) != 1 {
		t.Errorf("the template was changed: %v", p.seen.Spec.Template)
	}
	if s.Namespace != "db" || *s.Spec.VolumeSnapshotClassName != "snap" || *s.Spec.Source.PersistentVolumeClaimName != "data-pg-0" || len(s.OwnerReferences) != 0 {
		t.Errorf("asks for %+v", s)
	}
}

func TestRefusedCopiesAreLeftAlone(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a", "b")
	p.limits.Class = 1
	p.seen.Refusals = map[made]Refusal{
		{"a", "20270505T110000Z"}: {Until: today("11:00:05")},
		{"b", "20270505T100000Z"}: {Until: today("12:00:00")}, // of another run
	}
	plan := p.look("11:00:00")
	p.want("one that is refused takes no room of the others", "b 20270505T110000Z at 11:00")
	if !plan.NextLook.Equal(today("11:00:05")) || !plan.LastScheduleTime.IsZero() {
		t.Errorf("looks again at %v, last run %v; want when the wait is over, and the run to go on", plan.NextLook, plan.LastScheduleTime)
	}
	p.look("11:00:05")
	p.want("it is asked for again", "b 20270505T110000Z at 11:00", "a 20270505T110000Z at 11:00")
	p = newPlay(t, hourly(), "10:30:00", "a")
	p.seen.Refusals = map[made]Refusal{{"a", "20270505T110000Z"}: {Until: today("12:30:00")}}
	p.every("11:00:00", "12:00:00")
	if plan := p.look("12:00:01"); plan.Missed+int(p.seen.Status.MissedSlots) == 0 {
		t.Error("a run of which every copy was refused until its deadline is not missed")
	}
}

func TestLooksAtTheDeadlineOfACopy(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a")
	p.seen.Spec.ReadyDeadlineSeconds, p.readyAfter = 600, 0
	p.look("11:00:00")
	if plan := p.look("11:00:01"); !plan.NextLook.Equal(today("11:10:00")) {
		t.Errorf("looks again at %v, want when the copy counts as failed", plan.NextLook)
	}
}

// TestNobodyIsAlwaysLeftOut: where the time of a run is over before all claims have
// had their turn, those that had none are the first in the next.
func TestNobodyIsAlwaysLeftOut(t *testing.T) {
	for _, jitter := range []int32{0, 600} {
		p := newPlay(t, hourly(), "10:30:00", "a", "b", "c")
		p.limits.Class, p.seen.Spec.JitterSeconds = 1, jitter
		copied := map[string]int{}
		for hour := range 6 { // each run has time for two of the three
			for _, minute := range []int{15, 45} {
				p.look(fmt.Sprintf("%d:%d:00", 11+hour, minute))
			}
		}
		for _, line := range p.log {
			copied[line[:1]]++
		}
		for _, claim := range []string{"a", "b", "c"} {
			if copied[claim] != 4 {
				t.Errorf("with a jitter of %d seconds claim %s has %d copies of 6 runs, want 4 as the others: %v", jitter, claim, copied[claim], p.log)
			}
		}
	}
}

// TestRefusedIsNotLate: a run that was begun in time and refused, by hooks that took
// minutes, is tried again also where the status came across another write.
func TestRefusedIsNotLate(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a")
	p.seen.Spec.CatchUp = v1alpha1.CatchUpNone
	p.look("10:31:00")
	p.seen.Refusals = map[made]Refusal{{"a", "20270505T110000Z"}: {Until: today("11:04:05")}}
	if plan := p.look("11:04:00"); plan.Missed > 0 {
		t.Errorf("%d runs are missed", plan.Missed)
	}
	p.look("11:04:05")
	p.want("it is asked for again", "a 20270505T110000Z at 11:04")
}
