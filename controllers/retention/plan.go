package retention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// Life says whether a claim lives.
type Life int

// Whether a claim lives. A claim that nobody has heard of is gone.
const (
	Gone Life = iota
	Living
	Deleting
)

// Member is a copy and what keeps it besides its age.
type Member struct {
	copies.Copy
	// Source names a claim that is not Bound yet and is filled from the copy.
	Source string
	// Group names the VolumeGroupSnapshot that it is a member of; empty: none.
	Group string
}

// Observed is what there is to decide by.
type Observed struct {
	Rules         v1alpha1.SnapshotRetention
	OnClaimDelete v1alpha1.OnClaimDelete
	// Zone is that of the schedule, by which hours, days and so on are told.
	Zone *time.Location
	// Cautious: the schedule is suspended or degraded.
	Cautious bool
	Claims   map[types.UID]Life
	Copies   []Member
}

// Verdict is what becomes of a copy, and why.
type Verdict struct {
	Member
	Why string
}

// Plan is what to keep and what to delete, each oldest first.
type Plan struct {
	Keep   []Verdict
	Delete []Verdict
	// NextLook is when time alone can change the plan; zero: never.
	NextLook time.Time
}

// Decide decides about every copy that is not being deleted already.
func Decide(now time.Time, seen Observed) Plan {
	d := decision{now: now, seen: seen, why: map[types.UID]string{}}
	byClaim := map[types.UID][]Member{}
	for _, m := range seen.Copies {
		if !m.Deleting {
			byClaim[m.ClaimUID] = append(byClaim[m.ClaimUID], m)
		}
	}
	for uid, members := range byClaim {
		slices.SortFunc(members, newestFirst)
		d.claim(seen.Claims[uid], members)
	}
	d.groups()
	return d.plan()
}

// newestFirst orders copies: of two of one time the one whose name comes first
// counts as newer, so that every look decides alike, and as admission does, which
// lets no other one of them stay as the last.
func newestFirst(a, b Member) int {
	return cmp.Or(b.At().Compare(a.At()), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// decision gathers why copies are kept; what is not in why goes.
type decision struct {
	now  time.Time
	seen Observed
	why  map[types.UID]string
	next time.Time
}

// keep keeps a copy; the first reason stays.
func (d *decision) keep(m Member, why string, args ...any) {
	if _, known := d.why[m.UID]; !known {
		d.why[m.UID] = fmt.Sprintf(why, args...)
	}
}

// until says that time alone changes the plan at an instant.
func (d *decision) until(t time.Time) {
	if t.After(d.now) && (d.next.IsZero() || t.Before(d.next)) {
		d.next = t
	}
}

// claim decides about the copies of one claim, newest first.
func (d *decision) claim(life Life, members []Member) {
	var ready, failed []Member
	for _, m := range members {
		if m.Hold != "" {
			d.keep(m, "held: %s", m.Hold)
		}
		if m.Source != "" {
			d.keep(m, "claim %s is being filled from it", m.Source)
		}
		switch m.State {
		case copies.Making:
			d.keep(m, "it is being made")
			d.until(m.Deadline)
		case copies.Ready:
			ready = append(ready, m)
		case copies.Failed:
			failed = append(failed, m)
		}
	}
	d.ready(life, ready)
	d.failed(life, failed)
}

// period is one of the rules that keep the newest copy of each stretch of time.
type period struct {
	name  string
	count int32
	// ordinal numbers the stretches.
	ordinal func(time.Time) int64
}

// Lengths in seconds.
const (
	hour = 3600
	day  = 24 * hour
)

// periods are the rules, and how a zone's calendar numbers hours to years.
func periods(r v1alpha1.SnapshotRetention, zone *time.Location) []period {
	offset := func(t time.Time) int64 { _, o := t.In(zone).Zone(); return int64(o) }
	days := func(t time.Time) int64 { return floor(t.Unix()+offset(t), day) }
	return []period{
		// An hour that the clocks repeat is two.
		{"hourly", r.Hourly, func(t time.Time) int64 { return floor(t.Unix()+offset(t)%hour, hour) }},
		{"daily", r.Daily, days},
		// 1 January 1970 was a Thursday, three days into its week.
		{"weekly", r.Weekly, func(t time.Time) int64 { return floor(days(t)+3, 7) }},
		{"monthly", r.Monthly, func(t time.Time) int64 {
			t = t.In(zone)
			return int64(t.Year())*12 + int64(t.Month())
		}},
		{"yearly", r.Yearly, func(t time.Time) int64 { return int64(t.In(zone).Year()) }},
	}
}

// floor divides, and rounds down also below zero.
func floor(n, by int64) int64 {
	if n < 0 {
		n -= by - 1
	}
	return n / by
}

// ready decides about the ready copies of a claim, newest first.
func (d *decision) ready(life Life, ready []Member) {
	rules := d.seen.Rules
	within := time.Duration(rules.KeepWithinSeconds) * time.Second
	least := int(max(rules.KeepLast, 1))
	for i, m := range ready {
		if end := m.At().Add(within); within > 0 && d.now.Before(end) {
			d.keep(m, "it is younger than keepWithinSeconds (%d)", rules.KeepWithinSeconds)
			d.until(end)
		}
		switch {
		case i < least && life != Gone:
			d.keep(m, "it is among the newest ready copies (keepLast %d)", least)
		case i < least && d.seen.Cautious:
			d.keep(m, "its claim is gone, but the schedule is suspended or degraded (keepLast %d)", least)
		case life != Gone:
		case d.seen.OnClaimDelete == v1alpha1.KeepAllCopies:
			d.keep(m, "its claim is gone, and onClaimDelete is KeepAll")
		case i == 0 && d.seen.OnClaimDelete != v1alpha1.ExpireCopies:
			d.keep(m, "its claim is gone, and it is the newest ready copy (onClaimDelete KeepNewest)")
		}
	}
	for _, p := range periods(rules, d.seen.Zone) {
		d.newestOf(p, life, ready)
	}
}

// newestOf keeps the newest ready copy of each of the last stretches of time: of
// those that have a copy or, where the claim is gone and no copy will come, of
// those up to now.
func (d *decision) newestOf(p period, life Life, ready []Member) {
	if p.count <= 0 {
		return
	}
	taken := int32(0)
	last := int64(0)
	for _, m := range ready {
		n := p.ordinal(m.At())
		if taken > 0 && n == last {
			continue
		}
		last = n
		taken++
		if life == Gone {
			if age := p.ordinal(d.now) - n; age < int64(p.count) {
				d.keep(m, "its claim is gone, and it is the newest ready copy of one of the last %d periods up to now (%s)", p.count, p.name)
				d.until(d.now.Add(time.Hour)) // soon enough to see a stretch end
			}
			continue
		}
		if taken > p.count {
			return
		}
		d.keep(m, "it is the newest ready copy of one of the newest %d periods with one (%s)", p.count, p.name)
	}
}

// failed decides about the failed copies of a claim, newest first.
func (d *decision) failed(life Life, failed []Member) {
	if life == Deleting {
		return
	}
	keep := v1alpha1.DefaultFailedKeep
	if d.seen.Rules.Failed.Keep != nil {
		keep = int(*d.seen.Rules.Failed.Keep)
	}
	after := time.Duration(d.seen.Rules.Failed.DeleteAfterSeconds) * time.Second
	for i, m := range failed {
		if end := m.Deadline.Add(after); i < keep && d.now.Before(end) {
			d.keep(m, "it failed less than failed.deleteAfterSeconds (%d) ago, and is among the newest %d failed ones", d.seen.Rules.Failed.DeleteAfterSeconds, keep)
			d.until(end)
		}
	}
}

// groups keeps every member of a group of which any member is kept.
func (d *decision) groups() {
	keeper := map[string]string{}
	for _, m := range d.seen.Copies {
		if _, kept := d.why[m.UID]; kept && m.Group != "" && (keeper[m.Group] == "" || m.Name < keeper[m.Group]) {
			keeper[m.Group] = m.Name
		}
	}
	for _, m := range d.seen.Copies {
		if keeper[m.Group] != "" {
			d.keep(m, "%s of its group %s is kept", keeper[m.Group], m.Group)
		}
	}
}

// plan sorts what was decided.
func (d *decision) plan() Plan {
	plan := Plan{NextLook: d.next}
	for _, m := range d.seen.Copies {
		why, kept := d.why[m.UID]
		switch {
		case m.Deleting:
		case kept:
			plan.Keep = append(plan.Keep, Verdict{m, why})
		default:
			plan.Delete = append(plan.Delete, Verdict{m, d.goes(m)})
		}
	}
	plan.sort()
	return plan
}

// sort puts the oldest first.
func (p Plan) sort() {
	oldestFirst := func(a, b Verdict) int { return newestFirst(b.Member, a.Member) }
	slices.SortFunc(p.Keep, oldestFirst)
	slices.SortFunc(p.Delete, oldestFirst)
}

// goes says why a copy is not kept.
func (d *decision) goes(m Member) string {
	life := d.seen.Claims[m.ClaimUID]
	switch {
	case m.State == copies.Failed && life == Deleting:
		return "it failed, and holds back the deletion of its claim"
	case m.State == copies.Failed:
		return "it failed, and the rules for failed copies keep it no longer"
	case life == Gone:
		return fmt.Sprintf("its claim is gone, and nothing keeps it (onClaimDelete %s)", cmp.Or(d.seen.OnClaimDelete, v1alpha1.KeepNewestCopy))
	}
	return "none of the rules of retention keeps it"
}
