package schedule

import (
	"errors"
	"maps"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// bookedFor is how long a copy is believed that the informers do not show. It is
// well above the time that a watch takes; a copy that somebody deleted before it
// was seen is counted for so long.
const bookedFor = time.Minute

// How long a refused copy is left alone: ever longer.
const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// ledger remembers, for as long as the process lives, what the informers do not
// show yet and what was refused. All of it can be lost: names of copies are the
// same after a restart.
type ledger struct {
	planning sync.Mutex // one plans at a time

	mu       sync.Mutex
	bookings map[types.NamespacedName]booking // by copy
	refusals map[types.NamespacedName]map[made]Refusal
}

// booking is a copy that was planned and that no informer has shown.
type booking struct {
	schedule types.NamespacedName
	claim    types.UID
	class    string
	slot     string
	group    string // empty: a snapshot by itself
	at       time.Time
}

func newLedger() *ledger {
	return &ledger{bookings: map[types.NamespacedName]booking{}, refusals: map[types.NamespacedName]map[made]Refusal{}}
}

// plan lets one planner at a time see what is in the making and book what it adds.
func (l *ledger) plan(now time.Time, with func(*ledger) error) error {
	l.planning.Lock()
	defer l.planning.Unlock()
	l.mu.Lock()
	for name, b := range l.bookings {
		if now.Sub(b.at) > bookedFor {
			delete(l.bookings, name)
		}
	}
	for _, of := range l.refusals {
		for what, refused := range of {
			if now.Sub(refused.Until) > lastRetry { // its run is over, or the claim is gone
				delete(of, what)
			}
		}
	}
	l.mu.Unlock()
	return with(l)
}

// book takes note of copies that will be created now.
func (l *ledger) book(schedule types.NamespacedName, now time.Time, planned []snapshotv1.VolumeSnapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range planned {
		s := &planned[i]
		l.bookings[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = booking{
			schedule: schedule, claim: types.UID(s.Labels[v1alpha1.LabelClaimUID]), class: *s.Spec.VolumeSnapshotClassName, slot: s.Labels[v1alpha1.LabelSlot], at: now,
		}
	}
}

// bookGroups takes note of groups likewise: of each claim by itself.
func (l *ledger) bookGroups(schedule types.NamespacedName, now time.Time, planned []Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range planned {
		g := &planned[i].Object
		for _, claim := range planned[i].Claims {
			l.bookings[ofGroup(types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, claim.UID)] = booking{
				schedule: schedule, claim: claim.UID, class: groupLoad(*g.Spec.VolumeGroupSnapshotClassName), slot: g.Labels[v1alpha1.LabelSlot], group: g.Name, at: now,
			}
		}
	}
}

// ofGroup is under what a claim of a group is booked. No snapshot has such a name.
func ofGroup(group types.NamespacedName, claim types.UID) types.NamespacedName {
	return types.NamespacedName{Namespace: group.Namespace, Name: group.Name + "/" + string(claim)}
}

// shownGroup strikes out a group that an informer shows.
func (l *ledger) shownGroup(group types.NamespacedName, claims []copies.GroupClaim) {
	for _, c := range claims {
		l.shown(ofGroup(group, c.UID))
	}
}

// shown strikes out what an informer shows, or what may never have been created.
func (l *ledger) shown(snapshot types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bookings, snapshot)
}

// made ends the refusals of a claim.
func (l *ledger) made(schedule types.NamespacedName, claim types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.refusals[schedule], func(of made, _ Refusal) bool { return of.claim == claim })
}

// refused strikes out a copy that was not created, by the name that it is booked
// under, and says until when it is not asked for again.
func (l *ledger) refused(schedule, booked types.NamespacedName, claim types.UID, slot string, now time.Time, why error) Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bookings, booked)
	if l.refusals[schedule] == nil {
		l.refusals[schedule] = map[made]Refusal{}
	}
	last, again := l.refusals[schedule][made{claim, slot}]
	next := Refusal{Reason: v1alpha1.ClaimRefused, Message: why.Error(), Wait: firstRetry}
	if errors.Is(why, errHook) {
		next.Reason = v1alpha1.ClaimHookFailed
	}
	if again {
		next.Wait = min(2*last.Wait, lastRetry)
	}
	next.Until = now.Add(next.Wait)
	l.refusals[schedule][made{claim, slot}] = next
	return next
}

// addTo adds to what was observed what no informer shows, and the refusals.
func (l *ledger) addTo(seen *Observed, schedule types.NamespacedName, readyWithin time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, b := range l.bookings {
		seen.Load.Cluster++
		seen.Load.Class[b.class]++
		if v, limited := seen.Volumes[b.claim]; limited {
			seen.Volumes[b.claim] = VolumeLoad{Pending: v.Pending + 1, LastAsked: latest(v.LastAsked, b.at)}
		}
		if b.schedule == schedule {
			seen.Copies = append(seen.Copies, copies.Copy{
				Name: name.Name, ClaimUID: b.claim, Slot: b.slot, With: b.group, Whole: b.group != "", Asked: b.at, Deadline: b.at.Add(readyWithin),
			})
		}
	}
	seen.Refusals = maps.Clone(l.refusals[schedule])
}

// forget lets go of a schedule's refusals. What it has booked is still made.
func (l *ledger) forget(schedule types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refusals, schedule)
}
