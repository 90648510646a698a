package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

// TestAskedLeavesNothingToAsk: whatever was asked for as a plan says, by it
// nothing is asked for again, the same claims wait for the same, and a run none of
// whose claims waits is over.
func TestAskedLeavesNothingToAsk(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := newPlay(t, hourly(), "10:30:00", slices.Repeat([]string{"c"}, 1+rng.IntN(8))...)
		for i := range p.seen.Candidates {
			c := p.seen.Candidates[i].Claim
			c.Name, c.UID = fmt.Sprint("c-", i), types.UID(fmt.Sprint("uid-", i))
		}
		p.seen.Spec.JitterSeconds = int32(60 * rng.IntN(3))
		if rng.IntN(2) == 0 {
			p.seen.Spec.ConcurrencyPolicy = v1alpha1.AllowConcurrent
		}
		if rng.IntN(2) == 0 {
			p.seen.RunToken = "now"
		}
		p.limits = Limits{Cluster: 1 + rng.IntN(12), Class: 1 + rng.IntN(12), Volume: map[string]VolumeLimit{"csi.example.com": {Every: time.Duration(rng.IntN(3)) * 15 * time.Second, Pending: rng.IntN(3)}}}
		p.seen.Load = Load{Cluster: rng.IntN(4), Class: map[string]int{"snap": rng.IntN(3)}}
		every, err := cron.Parse(p.seen.Spec.Schedule, "UTC")
		if err != nil {
			t.Fatal(err)
		}
		p.seen.Cron = every
		now := today("11:00:00").Add(time.Duration(rng.IntN(150)) * time.Second)
		plan := Decide(now, p.seen, p.limits)
		seen := p.seen.Asked(now, plan, nil)
		left := Decide(now, seen, p.limits)
		if left.asks() {
			t.Fatalf("seed %d: asked for %v, and then for %v", seed, asked(plan), asked(left))
		}
		if diff := cmp.Diff(plan.Waiting, left.Waiting); diff != "" {
			t.Fatalf("seed %d: other claims wait once the rest was asked for (-before +after)\n%s", seed, diff)
		}
		ran := 0
		for _, c := range seen.Copies {
			if c.Slot == copies.SlotOf(today("11:00:00")) {
				ran++
			}
		}
		if over := left.LastScheduleTime.Equal(today("11:00:00")); over != (ran == len(p.seen.Candidates)) {
			t.Fatalf("seed %d: the run is over: %t, with %d of %d copies", seed, over, ran, len(p.seen.Candidates))
		}
		if len(p.seen.Copies) != 0 || len(p.seen.Volumes) != 0 {
			t.Fatalf("seed %d: what was observed is changed", seed)
		}
	}
}

// TestAskedAndRefused: what was refused is not there, its run goes on, and the
// others have their copies.
func TestAskedAndRefused(t *testing.T) {
	p := newPlay(t, hourly(), "10:30:00", "a", "b")
	p.look("10:31:00")
	now := today("11:00:00")
	p.seen.Refusals = map[made]Refusal{{"b", "before"}: {}}
	plan := Decide(now, p.seen, p.limits)
	why := Refusal{Reason: v1alpha1.ClaimRefused, Message: "quota", Until: now.Add(firstRetry)}
	seen := p.seen.Asked(now, plan, map[made]Refusal{{"a", copies.SlotOf(now)}: why})
	left := Decide(now, seen, p.limits)
	if left.asks() || !left.LastScheduleTime.IsZero() || !left.NextLook.Equal(why.Until) {
		t.Errorf("then %v is asked for, the last run is %v, and it looks again at %v; want nothing, none, and when the refusal ends", asked(left), left.LastScheduleTime, left.NextLook)
	}
	status := Report(now, p.seen.Status, 7, Found{Seen: seen, Plan: left, Refused: stillRefused(seen, now)})
	if status.PendingCount != 1 || len(status.Claims) != 1 || status.Claims[0].Name != "a" || status.Claims[0].Message != "quota" {
		t.Errorf("the status is %+v, want b in the making and a refused", status)
	}
}

// TestTwoRunsAreRefused: a claim of which a run by hand and one by schedule are
// refused has both left alone, and neither is over.
func TestTwoRunsAreRefused(t *testing.T) {
	for _, policy := range []v1alpha1.ConcurrencyPolicy{v1alpha1.ForbidConcurrent, v1alpha1.AllowConcurrent} {
		p := newPlay(t, hourly(), "10:30:00", "a")
		p.look("10:31:00")
		p.seen.Spec.ConcurrencyPolicy, p.seen.RunToken = policy, "before the upgrade"
		l, key, seen := newLedger(), types.NamespacedName{Namespace: "db", Name: "hourly"}, p.seen
		tries := 0
		for now := today("11:00:00"); now.Before(today("11:01:00")); now = now.Add(10 * time.Millisecond) {
			_ = l.plan(now, func(l *ledger) error {
				seen = p.seen
				seen.Load = Load{Class: map[string]int{}}
				l.addTo(&seen, key, time.Hour)
				return nil
			})
			plan := Decide(now, seen, p.limits)
			refused := map[made]Refusal{}
			for _, s := range plan.Create {
				tries++
				what := made{"a", s.Labels[v1alpha1.LabelSlot]}
				refused[what] = l.refused(key, types.NamespacedName{Namespace: "db", Name: s.Name}, what.claim, what.slot, now, errors.New("quota"))
			}
			if left := Decide(now, seen.Asked(now, plan, refused), p.limits); !left.LastScheduleTime.IsZero() || left.LastRunToken != "" {
				t.Fatalf("%s: a run of which nothing was made is over: by schedule %v, by hand %q", policy, left.LastScheduleTime, left.LastRunToken)
			}
		}
		// At 0, 5, 15 and 35 seconds, each of the two.
		if tries != 8 {
			t.Errorf("%s: asked for %d times in a minute, want 8", policy, tries)
		}
	}
}

// TestAskedOfGroups: a group stands for the copies of its claims.
func TestAskedOfGroups(t *testing.T) {
	now := today("11:00:01")
	for _, consistency := range []v1alpha1.Consistency{v1alpha1.GroupCopies, v1alpha1.BestEffortGroups} {
		seen := grouped(consistency, []string{"data-0/a/ga/sa", "log-0/a/ga/sa", "data-1/a//sa", "log-1/a//sa"}, "n1:data-0,log-0", "n2:data-1,log-1")
		if consistency == v1alpha1.GroupCopies {
			seen.Candidates = seen.Candidates[:2]
		}
		limits := Limits{Cluster: 10, Class: 10}
		plan := Decide(now, seen, limits)
		after := seen.Asked(now, plan, nil)
		left := Decide(now, after, limits)
		if left.asks() || len(left.Waiting) > 0 || !left.LastScheduleTime.Equal(today("11:00:00")) {
			t.Errorf("%s: %v is asked for, and then %v; the last run is %v", consistency, asked(plan), asked(left), left.LastScheduleTime)
		}
		if len(after.Copies) != len(seen.Candidates) {
			t.Errorf("%s: %d copies of %d claims", consistency, len(after.Copies), len(seen.Candidates))
		}
		for _, c := range after.Copies {
			if c.With == "" || c.Whole != slices.Contains([]types.UID{"uid-data-0", "uid-log-0"}, c.ClaimUID) {
				t.Errorf("%s: the copy of %s was cut with %q, as a whole: %t", consistency, c.ClaimUID, c.With, c.Whole)
			}
		}
	}
}

// TestWaitingIsToldAlike: a text that names a count would be written at each look.
func TestWaitingIsToldAlike(t *testing.T) {
	var before []v1alpha1.ClaimSnapshots
	for _, uncut := range []int{9, 10, 12} {
		var told []v1alpha1.ClaimSnapshots
		for _, limits := range []Limits{{Cluster: 9, Class: 1000}, {Cluster: 1000, Class: 9}} {
			p := newPlay(t, hourly(), "10:30:00", "a")
			p.limits, p.seen.Load = limits, Load{Cluster: uncut, Class: map[string]int{"snap": uncut}}
			told = append(told, p.look("11:00:00").Waiting...)
		}
		if len(told) != 2 {
			t.Fatalf("with %d of 9 uncut %d wait, want both", uncut, len(told))
		}
		if diff := cmp.Diff(before, told); before != nil && diff != "" {
			t.Errorf("with %d uncut it is told otherwise (-before +now)\n%s", uncut, diff)
		}
		before = told
	}
}
