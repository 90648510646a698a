package retention

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// kept is Keep a second time, as a sentence about one copy: it looks at one copy
// among all and neither sorts nor counts on the way.
func kept(now time.Time, seen Observed, m Member) bool {
	if m.Group != "" {
		for _, other := range seen.Copies {
			if other.Group == m.Group && !other.Deleting && keptAlone(now, seen, other) {
				return true
			}
		}
	}
	return keptAlone(now, seen, m)
}

func keptAlone(now time.Time, seen Observed, m Member) bool {
	rules, life := seen.Rules, seen.Claims[m.ClaimUID]
	// newer counts copies of the same claim in the same state that are newer and fit.
	newer := func(fits func(Member) bool) int {
		n := 0
		for _, o := range seen.Copies {
			later := o.At().After(m.At()) || o.At().Equal(m.At()) && o.Name < m.Name
			if !o.Deleting && o.ClaimUID == m.ClaimUID && o.State == m.State && later && fits(o) {
				n++
			}
		}
		return n
	}
	all := func(Member) bool { return true }
	if m.Hold != "" || m.Source != "" || m.State == copies.Making {
		return true
	}
	if m.State == copies.Failed {
		young := now.Sub(m.Deadline) < time.Duration(rules.Failed.DeleteAfterSeconds)*time.Second
		return life != Deleting && young && newer(all) < int(*rules.Failed.Keep)
	}
	if now.Sub(m.At()) < time.Duration(rules.KeepWithinSeconds)*time.Second {
		return true
	}
	if life != Gone || seen.Cautious {
		if newer(all) < int(max(rules.KeepLast, 1)) {
			return true
		}
	}
	if life == Gone && (seen.OnClaimDelete == v1alpha1.KeepAllCopies || seen.OnClaimDelete == v1alpha1.KeepNewestCopy && newer(all) == 0) {
		return true
	}
	for _, rule := range []struct {
		count int32
		of    func(time.Time) string         // names the period
		back  func(time.Time, int) time.Time // an instant in the nth period before
	}{
		{rules.Hourly, func(t time.Time) string { return t.Format("2006-01-02T15 -0700") }, func(t time.Time, n int) time.Time { return t.Add(-time.Duration(n) * time.Hour) }},
		{rules.Daily, func(t time.Time) string { return t.Format(time.DateOnly) }, func(t time.Time, n int) time.Time { return noon(t).AddDate(0, 0, -n) }},
		{rules.Weekly, func(t time.Time) string { y, w := t.ISOWeek(); return fmt.Sprint(y, w) }, func(t time.Time, n int) time.Time { return noon(t).AddDate(0, 0, -7*n) }},
		{rules.Monthly, func(t time.Time) string { return t.Format("2006-01") }, func(t time.Time, n int) time.Time { return noon(t).AddDate(0, 0, 15-t.Day()).AddDate(0, -n, 0) }},
		{rules.Yearly, func(t time.Time) string { return t.Format("2006") }, func(t time.Time, n int) time.Time { return noon(t).AddDate(-n, 0, 0) }},
	} {
		mine := rule.of(m.At().In(seen.Zone))
		if newer(func(o Member) bool { return rule.of(o.At().In(seen.Zone)) == mine }) > 0 {
			continue // not the newest of its period
		}
		if life == Gone {
			for n := range int(rule.count) {
				if rule.of(rule.back(now.In(seen.Zone), n)) == mine {
					return true
				}
			}
			continue
		}
		periods := map[string]bool{}
		newer(func(o Member) bool { periods[rule.of(o.At().In(seen.Zone))] = true; return true })
		if len(periods) < int(rule.count) {
			return true
		}
	}
	return false
}

func noon(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 12, 0, 0, 0, t.Location())
}

// history makes up some claims and copies of them, with ties, gaps, and all that
// keeps a copy.
func history(r *rand.Rand, zone *time.Location) (time.Time, Observed) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.Int64N(3*365*24*60)) * time.Minute)
	few := func() int32 { return int32(max(r.IntN(8)-2, 0)) }
	seen := Observed{
		Zone: zone, Cautious: r.IntN(4) == 0, Claims: map[types.UID]Life{},
		OnClaimDelete: []v1alpha1.OnClaimDelete{v1alpha1.KeepNewestCopy, v1alpha1.KeepAllCopies, v1alpha1.ExpireCopies}[r.IntN(3)],
		Rules: v1alpha1.SnapshotRetention{
			KeepLast: few(), KeepWithinSeconds: few() * 7200, Hourly: few(), Daily: few(), Weekly: few(), Monthly: few(), Yearly: few(),
			Failed: v1alpha1.FailedRetention{Keep: ptr.To(few()), DeleteAfterSeconds: 60 + int32(r.IntN(200000))},
		},
	}
	for c := range 1 + r.IntN(3) {
		claim := types.UID(rune('a' + c))
		if life := Life(r.IntN(3)); life != Gone {
			seen.Claims[claim] = life
		}
		every := []time.Duration{20 * time.Minute, time.Hour, 7 * time.Hour, 24 * time.Hour, 15 * 24 * time.Hour}[r.IntN(5)]
		at := now
		for i := range r.IntN(60) {
			if r.IntN(10) > 0 {
				at = at.Add(-every + time.Duration(r.Int64N(int64(every))))
			}
			m := Member{Copy: copies.Copy{ClaimUID: claim, Name: fmt.Sprintf("%s-%02d", claim, i), State: copies.Ready, Asked: at, Cut: at, Deadline: at.Add(time.Hour), Deleting: r.IntN(20) == 0}}
			m.UID = types.UID(m.Name)
			switch r.IntN(8) {
			case 0:
				m.State = copies.Failed
				m.Cut = time.Time{}
			case 1:
				m.State = copies.Making
			}
			if r.IntN(20) == 0 {
				m.Hold = "reason"
			}
			if r.IntN(20) == 0 {
				m.Source = "claim"
			}
			if r.IntN(10) == 0 {
				m.Group = fmt.Sprint("g", r.IntN(6))
			}
			seen.Copies = append(seen.Copies, m)
		}
	}
	r.Shuffle(len(seen.Copies), func(i, j int) { seen.Copies[i], seen.Copies[j] = seen.Copies[j], seen.Copies[i] })
	return now, seen
}

func TestDecideKeepsWhatTheDefinitionKeeps(t *testing.T) {
	var zones []*time.Location
	for _, name := range []string{"UTC", "America/New_York", "Asia/Kolkata"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	for seed := range uint64(1500) {
		now, seen := history(rand.New(rand.NewPCG(seed, 1)), zones[seed%3])
		plan := Decide(now, seen)
		deleted := map[types.UID]bool{}
		for _, v := range plan.Delete {
			deleted[v.UID] = true
		}
		judged := len(plan.Keep) + len(plan.Delete)
		for _, m := range seen.Copies {
			if m.Deleting {
				judged++
				if deleted[m.UID] {
					t.Fatalf("seed %d: %s is deleted twice", seed, m.Name)
				}
				continue
			}
			if want := kept(now, seen, m); want == deleted[m.UID] {
				t.Fatalf("seed %d: %+v: deleted %t, by the definition kept %t", seed, m, deleted[m.UID], want)
			}
			if deleted[m.UID] && (m.Hold != "" || m.Source != "" || m.State == copies.Making) {
				t.Fatalf("seed %d: %s is deleted, though it is held, in use or being made", seed, m.Name)
			}
		}
		if judged != len(seen.Copies) {
			t.Fatalf("seed %d: %d of %d copies are judged", seed, judged, len(seen.Copies))
		}
		lastGoodStays(t, seed, seen, plan)
		bounded(t, seed, seen, plan)
	}
}

// lastGoodStays: the newest ready copy of a claim is never deleted, but where
// the claim is gone and Expire says so.
func lastGoodStays(t *testing.T, seed uint64, seen Observed, plan Plan) {
	newest := map[types.UID]Member{}
	for _, m := range seen.Copies {
		if best, ok := newest[m.ClaimUID]; m.State == copies.Ready && !m.Deleting && (!ok || newestFirst(m, best) < 0) {
			newest[m.ClaimUID] = m
		}
	}
	for _, v := range plan.Delete {
		if newest[v.ClaimUID].UID == v.UID && (seen.Claims[v.ClaimUID] != Gone || seen.OnClaimDelete != v1alpha1.ExpireCopies || seen.Cautious) {
			t.Fatalf("seed %d: %s is deleted, the newest ready copy of its claim", seed, v.Name)
		}
	}
}

// bounded: of a living claim no more is kept than the rules add up to, leaving
// aside what is kept for other reasons than its place in time.
func bounded(t *testing.T, seed uint64, seen Observed, plan Plan) {
	ready, failed := map[types.UID]int{}, map[types.UID]int{}
	for _, v := range plan.Keep {
		if v.Hold != "" || v.Source != "" || v.Group != "" {
			continue
		}
		switch v.State {
		case copies.Ready:
			ready[v.ClaimUID]++
		case copies.Failed:
			failed[v.ClaimUID]++
		}
	}
	r := seen.Rules
	most := int(max(r.KeepLast, 1) + r.Hourly + r.Daily + r.Weekly + r.Monthly + r.Yearly)
	for claim, life := range seen.Claims {
		if life == Living && r.KeepWithinSeconds == 0 && ready[claim] > most || failed[claim] > int(*r.Failed.Keep) {
			t.Fatalf("seed %d: %d ready and %d failed copies of claim %s are kept, want at most %d and %d", seed, ready[claim], failed[claim], claim, most, *r.Failed.Keep)
		}
	}
}
