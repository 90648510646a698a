package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/cron"
)

// lateAfter is how late a run may begin and still count as on time: a restart of
// the manager, or another leader, takes less.
const lateAfter = time.Minute

// Observed is what there is to decide by.
type Observed struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	// RunToken is the value of the annotation holdfast.dev/run-now; empty: none.
	RunToken string
	Spec     v1alpha1.SnapshotScheduleSpec
	Status   v1alpha1.SnapshotScheduleStatus
	// Cron is the spec's schedule in its time zone.
	Cron *cron.Schedule
	// Candidates are the claims that can be copied.
	Candidates []Candidate
	// Pods are the running ones that mount claims. They are only known where
	// NeedsPods says so.
	Pods []Pod
	// Copies are the schedule's own.
	Copies []copies.Copy
	// Load and Volumes, by claim, are what is in the making already.
	Load    Load
	Volumes map[types.UID]VolumeLoad
	// Refusals are the copies that were refused when they were last asked for.
	Refusals map[made]Refusal
}

// Refusal is a copy that the API server did not let be made, or a hook stands before.
type Refusal struct {
	// Reason is ClaimRefused or ClaimHookFailed, Message says why.
	Reason  v1alpha1.ClaimReason
	Message string
	// Wait is how long it is left alone, Until when that ends.
	Wait  time.Duration
	Until time.Time
}

// Plan is what to do now, and what to remember.
type Plan struct {
	// Create are the copies to ask for, in this order. One that is there already
	// with the same labels is as good.
	Create []snapshotv1.VolumeSnapshot
	// Groups are the groups to ask for, likewise.
	Groups []Group
	// Waiting are the claims whose copy is due and cannot be asked for yet.
	Waiting []v1alpha1.ClaimSnapshots
	// Missed are how many runs were found to be missed (100 at most), the newest
	// of them at NewestMissed.
	Missed       int
	NewestMissed time.Time
	// The rest is the status from now on.
	ActiveSince      time.Time
	ScheduleHash     string
	LastScheduleTime time.Time // zero: none yet
	NextScheduleTime time.Time // zero: suspended
	MissedSlots      int32
	LastRunToken     string
	// NextLook is when time alone can change the plan; zero: never.
	NextLook time.Time
}

// asks says whether there is anything to ask for.
func (p Plan) asks() bool { return len(p.Create)+len(p.Groups) > 0 }

// Hash is of all that moves activeSince.
func Hash(spec *v1alpha1.SnapshotScheduleSpec) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %t", spec.Schedule, cmp.Or(spec.TimeZone, "UTC"), spec.Suspend))
	return hex.EncodeToString(sum[:8])
}

// Decide decides what is due.
func Decide(now time.Time, seen Observed, limits Limits) Plan {
	p := planner{now: now, seen: seen, limits: limits, made: map[made]bool{}, runs: map[string]bool{}}
	p.units = units(seen)
	for _, c := range seen.Copies {
		p.made[made{c.ClaimUID, c.Slot}] = true
		p.runs[c.Slot] = true
		if c.State == copies.Making && !c.Deleting {
			p.look(c.Deadline) // then it counts as failed
		}
	}
	p.seen.Load.Class = maps.Clone(seen.Load.Class)
	p.seen.Volumes = maps.Clone(seen.Volumes)
	p.remember()
	p.byHand()
	if !seen.Spec.Suspend {
		p.bySchedule()
		p.plan.NextScheduleTime = seen.Cron.Next(latest(now, p.plan.ActiveSince, p.plan.LastScheduleTime))
		p.look(p.plan.NextScheduleTime)
	}
	slices.SortFunc(p.plan.Waiting, func(a, b v1alpha1.ClaimSnapshots) int { return cmp.Compare(a.Name, b.Name) })
	return p.plan
}

// Asked is what was observed, and what has been asked for since as a plan says:
// the copies are there, but for those that were refused. A plan by it is what is
// left, so that a run is told of when it was asked for, and not once more
// when the informers show it.
func (seen Observed) Asked(now time.Time, plan Plan, refused map[made]Refusal) Observed {
	seen.Copies, seen.Load.Class = slices.Clone(seen.Copies), maps.Clone(seen.Load.Class)
	seen.Volumes, seen.Refusals = maps.Clone(seen.Volumes), maps.Clone(seen.Refusals)
	add := func(c copies.Copy, class string) {
		if _, is := refused[made{c.ClaimUID, c.Slot}]; is {
			return
		}
		maps.DeleteFunc(seen.Refusals, func(of made, _ Refusal) bool { return of.claim == c.ClaimUID })
		c.Asked, c.Deadline = now, now.Add(time.Duration(seen.Spec.ReadyDeadlineSeconds)*time.Second)
		seen.Copies = append(seen.Copies, c)
		seen.count(class, c.ClaimUID, now)
	}
	for i := range plan.Create {
		s := &plan.Create[i]
		add(copies.Copy{
			Name: s.Name, ClaimUID: types.UID(s.Labels[v1alpha1.LabelClaimUID]), Slot: s.Labels[v1alpha1.LabelSlot], With: s.Annotations[v1alpha1.AnnotationGroup],
		}, *s.Spec.VolumeSnapshotClassName)
	}
	for i := range plan.Groups {
		g := &plan.Groups[i].Object
		for _, c := range plan.Groups[i].Claims {
			add(copies.Copy{Name: g.Name, ClaimUID: c.UID, Slot: g.Labels[v1alpha1.LabelSlot], With: g.Name, Whole: true}, groupLoad(*g.Spec.VolumeGroupSnapshotClassName))
		}
	}
	if seen.Refusals == nil {
		seen.Refusals = map[made]Refusal{}
	}
	maps.Copy(seen.Refusals, refused)
	return seen
}

// count counts a copy that is asked for.
func (seen *Observed) count(class string, claim types.UID, now time.Time) {
	if seen.Load.Class == nil {
		seen.Load.Class = map[string]int{}
	}
	if seen.Volumes == nil {
		seen.Volumes = map[types.UID]VolumeLoad{}
	}
	seen.Load.Class[class]++
	seen.Load.Cluster++
	seen.Volumes[claim] = VolumeLoad{Pending: seen.Volumes[claim].Pending + 1, LastAsked: now}
}

// made is the copy of a claim in a run: what was made, or refused.
type made struct {
	claim types.UID
	slot  string
}

type planner struct {
	now    time.Time
	seen   Observed // Load and Volumes count what is planned, too
	limits Limits
	made   map[made]bool
	runs   map[string]bool // slots of which there is any copy
	units  []unit
	plan   Plan
}

// look looks again at an instant.
func (p *planner) look(at time.Time) {
	if at.After(p.now) && (p.plan.NextLook.IsZero() || at.Before(p.plan.NextLook)) {
		p.plan.NextLook = at
	}
}

// NeedsPods says whether Decide has to know which Pods mount the claims: a run
// may be due, and its claims are copied in groups.
func NeedsPods(now time.Time, seen Observed) bool {
	if c := seen.Spec.Consistency; c != v1alpha1.GroupCopies && c != v1alpha1.BestEffortGroups {
		return false
	}
	p := planner{now: now, seen: seen}
	p.remember()
	_, due := seen.Cron.Latest(latest(p.plan.ActiveSince, p.plan.LastScheduleTime), now)
	return due && !seen.Spec.Suspend || seen.RunToken != "" && seen.RunToken != seen.Status.LastRunToken
}

// remember carries over what the status knows, and sees a change of the spec.
func (p *planner) remember() {
	status := p.seen.Status
	p.plan.ScheduleHash = Hash(&p.seen.Spec)
	switch {
	case status.ActiveSince == nil:
		p.plan.ActiveSince = p.seen.Created
	case status.ObservedScheduleHash != p.plan.ScheduleHash:
		p.plan.ActiveSince = p.now
	default:
		p.plan.ActiveSince = status.ActiveSince.Time
	}
	if status.LastScheduleTime != nil {
		p.plan.LastScheduleTime = status.LastScheduleTime.Time
	}
	p.plan.MissedSlots, p.plan.LastRunToken = status.MissedSlots, status.LastRunToken
}

// run is a run that is due.
type run struct {
	slot string
	at   time.Time
	// jitter spreads claims over this time; deadline is when a claim's copy comes
	// too late, counted from its place; zero: never.
	jitter, deadline time.Duration
	// late: nobody looked when it was due, and catchUp forbids to begin it now.
	late bool
}

// bySchedule plans the newest run that is due.
func (p *planner) bySchedule() {
	since := latest(p.plan.ActiveSince, p.plan.LastScheduleTime)
	at, due := p.seen.Cron.Latest(since, p.now)
	if !due {
		return
	}
	p.missedBefore(since, at)
	spec := p.seen.Spec
	r := run{
		slot: copies.SlotOf(at), at: at,
		jitter:   min(time.Duration(spec.JitterSeconds)*time.Second, p.seen.Cron.Next(at).Sub(at)/2),
		deadline: time.Duration(spec.StartingDeadlineSeconds) * time.Second,
	}
	r.late = spec.CatchUp == v1alpha1.CatchUpNone && !p.runs[r.slot] && p.now.Sub(at) > r.jitter+lateAfter && !p.begun(at)
	asked, over := p.claims(r)
	if !over {
		return
	}
	if !asked && !p.runs[r.slot] && p.wanted(r) {
		p.missed(1, at)
	}
	p.plan.LastScheduleTime = at
}

// begun says whether somebody has looked since a run was due: what it lacks is
// then held up by something, and was not missed. What was refused of it says so too
// where the status could not be written.
func (p *planner) begun(at time.Time) bool {
	for what := range p.seen.Refusals {
		if what.slot == copies.SlotOf(at) {
			return true
		}
	}
	next := p.seen.Status.NextScheduleTime
	return next != nil && next.After(at)
}

// missedBefore counts the runs between two instants of which there is no copy,
// and has done with them.
func (p *planner) missedBefore(since, at time.Time) {
	before, any := p.seen.Cron.Latest(since, at.Add(-time.Nanosecond))
	if !any {
		return
	}
	n := 0
	for t := p.seen.Cron.Next(since); !t.After(before) && n < maxMissed; t = p.seen.Cron.Next(t) {
		if !p.runs[copies.SlotOf(t)] {
			n++
		}
	}
	if n > 0 && p.wanted(run{at: before}) {
		p.missed(n, before)
	}
	p.plan.LastScheduleTime = before
}

// maxMissed is how far missed runs are counted in one look.
const maxMissed = 100

func (p *planner) missed(n int, newest time.Time) {
	p.plan.Missed = min(p.plan.Missed+n, maxMissed)
	p.plan.NewestMissed = newest
	p.plan.MissedSlots = p.seen.Status.MissedSlots + int32(p.plan.Missed)
}

// byHand plans the run that somebody asked for.
func (p *planner) byHand() {
	token := p.seen.RunToken
	if token == "" || token == p.seen.Status.LastRunToken {
		return
	}
	r := run{slot: copies.RunOf(token), at: p.now}
	if _, over := p.claims(r); over {
		p.plan.LastRunToken = token
	}
}

// wanted says whether any claim is to be copied in a run at all.
func (p *planner) wanted(r run) bool {
	return slices.ContainsFunc(p.seen.Candidates, func(c Candidate) bool { return !madeAfter(c, r) })
}

// madeAfter says whether the claim was not there when the run was due.
func madeAfter(c Candidate, r run) bool { return c.Claim.CreationTimestamp.After(r.at) }

// claims plans the copies of a run. asked: some are asked for now; over: no
// claim waits for its copy.
func (p *planner) claims(r run) (asked, over bool) {
	over = true
	for _, u := range p.inOrder(r) {
		due := r.at.Add(copies.Jitter(p.seen.UID, u.key, r.jitter))
		end := due.Add(r.deadline)
		u.claims = slices.DeleteFunc(slices.Clone(u.claims), func(c Candidate) bool { return madeAfter(c, r) || p.made[made{c.Claim.UID, r.slot}] })
		switch {
		case len(u.claims) == 0, r.late:
			continue
		case r.deadline > 0 && p.now.After(end):
			continue
		}
		over = false
		if p.now.Before(due) {
			p.look(due)
			continue
		}
		if r.deadline > 0 {
			p.look(end.Add(time.Nanosecond))
		}
		if until := p.refusedUntil(u, r); !until.IsZero() {
			p.look(until)
			continue
		}
		if reason, why, until := p.stands(u); why != "" {
			p.look(until)
			for _, c := range u.claims {
				p.plan.Waiting = append(p.plan.Waiting, v1alpha1.ClaimSnapshots{UID: c.Claim.UID, Name: c.Claim.Name, Reason: reason, Message: why})
			}
			continue
		}
		asked = true
		p.ask(u, r)
	}
	return asked, over
}

// refusedUntil is until when a unit is left alone since a claim of it was refused.
func (p *planner) refusedUntil(u unit, r run) time.Time {
	var until time.Time
	for _, c := range u.claims {
		if refused := p.seen.Refusals[made{c.Claim.UID, r.slot}]; p.now.Before(refused.Until) {
			until = latest(until, refused.Until)
		}
	}
	return until
}

// inOrder are the units by how long ago they were copied, then by their place in a
// run and by name: where a run has no time for all, others are left out by the next.
func (p *planner) inOrder(r run) []unit {
	asked := map[types.UID]time.Time{}
	for _, c := range p.seen.Copies {
		if c.Slot != r.slot {
			asked[c.ClaimUID] = latest(asked[c.ClaimUID], c.Asked)
		}
	}
	oldest := func(u unit) time.Time {
		first := asked[u.claims[0].Claim.UID]
		for _, c := range u.claims[1:] {
			if t := asked[c.Claim.UID]; t.Before(first) {
				first = t
			}
		}
		return first
	}
	return slices.SortedFunc(slices.Values(p.units), func(a, b unit) int {
		return cmp.Or(
			oldest(a).Compare(oldest(b)),
			cmp.Compare(copies.Jitter(p.seen.UID, a.key, r.jitter), copies.Jitter(p.seen.UID, b.key, r.jitter)),
			cmp.Compare(a.claims[0].Claim.Name, b.claims[0].Claim.Name))
	})
}

// stands says what stands in the way of a unit's copies, and when to look again;
// empty: nothing. What is copied together waits together.
func (p *planner) stands(u unit) (reason v1alpha1.ClaimReason, why string, until time.Time) {
	if u.loose && p.seen.Spec.Consistency == v1alpha1.GroupCopies {
		return v1alpha1.ClaimNotMounted, "no running Pod mounts the claim, and with consistency Group a group is what a Pod mounts", p.now.Add(lookAgain)
	}
	if c := u.claims[0]; !u.whole && c.Class == "" { // it is loose, and its driver has a class of groups alone
		return v1alpha1.ClaimNotMounted, fmt.Sprintf("no running Pod mounts the claim, so it is of no group, and driver %s has no VolumeSnapshotClass by which it could be copied by itself", c.Driver), p.now.Add(lookAgain)
	}
	for _, c := range u.claims {
		if why, until = p.hindered(c, u); why == "" {
			continue
		}
		if len(u.claims) > 1 {
			why = fmt.Sprintf("claim %s of its group: %s", c.Claim.Name, why)
		}
		return v1alpha1.ClaimWaits, why, until
	}
	return "", "", time.Time{}
}

// lookAgain is after how long a full queue is looked at again, besides whenever
// a copy changes.
const lookAgain = 15 * time.Second

// hindered says why the copy of a claim of a unit cannot be asked for now, and
// when to look again; empty: it can.
func (p *planner) hindered(c Candidate, u unit) (why string, until time.Time) {
	if p.seen.Spec.ConcurrencyPolicy != v1alpha1.AllowConcurrent {
		if until, busy := p.busy(c); busy {
			return "the copy before is still being made (concurrencyPolicy Forbid)", until
		}
	}
	volume, limit := p.seen.Volumes[c.Claim.UID], p.limits.Volume[c.Driver]
	again := p.now.Add(lookAgain)
	switch {
	case limit.Pending > 0 && volume.Pending >= limit.Pending:
		return fmt.Sprintf("%d copies of the volume are being made, driver %s holds %d", volume.Pending, c.Driver, limit.Pending), again
	case limit.Every > 0 && !volume.LastAsked.IsZero() && p.now.Before(volume.LastAsked.Add(limit.Every)):
		return fmt.Sprintf("driver %s begins one copy of a volume in %v", c.Driver, limit.Every), volume.LastAsked.Add(limit.Every)
	// The limit and not the count, which is another at each look: the text is written.
	case full(p.seen.Load.Class[u.class()], len(u.claims), p.limits.Class):
		return fmt.Sprintf("%d copies of %s may wait to be cut, and do: it is asked for when there is room", p.limits.Class, u.className()), again
	case full(p.seen.Load.Cluster, len(u.claims), p.limits.Cluster):
		return fmt.Sprintf("%d copies in the cluster may wait to be cut, and do: it is asked for when there is room", p.limits.Cluster), again
	}
	return "", time.Time{}
}

// full says whether so many more do not go in. A group that is larger than the
// limit goes in by itself.
func full(has, more, limit int) bool { return has > 0 && has+more > limit }

// busy says whether a copy of the claim by this schedule is being made or is
// planned now, and when it stops to count if nothing happens to it.
func (p *planner) busy(c Candidate) (until time.Time, busy bool) {
	for _, other := range p.seen.Copies {
		if other.ClaimUID == c.Claim.UID && other.State == copies.Making && !other.Deleting {
			until, busy = latest(until, other.Deadline), true
		}
	}
	for _, planned := range p.plan.Create {
		if planned.Labels[v1alpha1.LabelClaimUID] == string(c.Claim.UID) {
			return p.now.Add(lookAgain), true
		}
	}
	for _, planned := range p.plan.Groups {
		if slices.ContainsFunc(planned.Claims, func(g copies.GroupClaim) bool { return g.UID == c.Claim.UID }) {
			return p.now.Add(lookAgain), true
		}
	}
	return until, busy
}

// ask plans the copies of a unit, and counts them.
func (p *planner) ask(u unit, r run) {
	if u.whole {
		p.plan.Groups = append(p.plan.Groups, p.group(u, r))
	} else {
		series := ""
		if len(u.claims) > 1 {
			series = u.name(p.seen.UID, r.slot)
		}
		for _, c := range u.claims {
			p.plan.Create = append(p.plan.Create, p.snapshot(c, r, series))
		}
	}
	for _, c := range u.claims {
		p.seen.count(u.class(), c.Claim.UID, p.now)
	}
}

// snapshot is the copy of a claim in a run. Nothing owns it, so that it outlives
// the schedule and the claim. series is what it is cut with; empty: it is alone.
func (p *planner) snapshot(c Candidate, r run, series string) snapshotv1.VolumeSnapshot {
	s := snapshotv1.VolumeSnapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.seen.Namespace, Name: copies.Name(c.Claim.Name, c.Claim.UID, p.seen.UID, r.slot),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &c.Claim.Name},
			VolumeSnapshotClassName: &c.Class,
		},
	}
	maps.Copy(s.Labels, p.seen.Spec.Template.Labels)
	maps.Copy(s.Annotations, p.seen.Spec.Template.Annotations)
	s.Labels[v1alpha1.LabelSchedule] = copies.LabelValue(p.seen.Name)
	s.Labels[v1alpha1.LabelClaimUID] = string(c.Claim.UID)
	s.Labels[v1alpha1.LabelSlot] = r.slot
	s.Annotations[v1alpha1.AnnotationClaim] = c.Claim.Name
	if series != "" {
		s.Annotations[v1alpha1.AnnotationGroup] = series
	}
	return s
}

// latest of some instants.
func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
