package orphan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
)

// Sight is what is known of one claim.
type Sight struct {
	Claim *corev1.PersistentVolumeClaim
	// Rules are those of the policy that acts; nil: none does.
	Rules *v1alpha1.PolicyOrphans
	// Sets are the living StatefulSets of its namespace.
	Sets []appsv1.StatefulSet
	// Remade: the set of its stamp is being made anew, and may not be there now.
	Remade bool
	// Leaving: its namespace is being deleted, and it goes with it.
	Leaving bool
	// Pods are those that name it, whatever they are doing, and Nodes those that
	// its volume is attached to, or is to be.
	Pods, Nodes []string
	// Clones are the claims that are to be made from it, and are not yet.
	Clones []string
	// LastUse is when this process last saw a Pod of it come or go; zero: never.
	LastUse time.Time
	// WatchedSince is since when this process would have seen one.
	WatchedSince time.Time
	// Watched is for how long this process has seen it left behind, without a break,
	// by a clock that nobody sets.
	Watched time.Duration
	// Leapt is by how much more than that the clock has gone ahead meanwhile.
	Leapt time.Duration
	// Snapshot is the one of the name that SnapshotName gives; nil: it is not there.
	Snapshot *snapshotv1.VolumeSnapshot
	// NoSnapshot is why none can be taken; empty: one can.
	NoSnapshot string
	// Forbidden is why the policies refuse its deletion, also once a snapshot is
	// ready; empty: they do not.
	Forbidden string
}

// Step is what is to be done with a claim.
type Step int

// The steps.
const (
	// Nothing: it is no orphan, and says nothing else.
	Nothing Step = iota
	// Unmark: it is no orphan any more.
	Unmark
	// Mark: it has become an orphan, or did so anew.
	Mark
	// Wait: it is an orphan, and nothing is due: it is too young, or its snapshot
	// is not ready.
	Wait
	// Report: it is one, and nothing more is to be done.
	Report
	// Blocked: it is to go, and something is in the way.
	Blocked
	// Snapshot: a snapshot of it is to be taken.
	Snapshot
	// Delete: it is to be deleted.
	Delete
)

// Verdict is what is decided about a claim, and why, as a sentence.
type Verdict struct {
	Step  Step
	Why   string
	Since time.Time // since when it has been an orphan; zero: it is none
}

// ahead is by how much clocks may differ. A mark that is further in the future
// would keep its claim for as long, and a snapshot that was cut too soon, by the
// driver's clock, would have to be deleted by hand.
const ahead = time.Minute

// trust is how long a process watches an orphan before it deletes it, if the policy
// gives it as long: a machine that has just begun may have a clock that is put right
// later.
const trust = 10 * time.Minute

// ready is how long a snapshot may take until that is told: a schedule's, which says
// nothing, has as long.
const ready = 24 * time.Hour

// Decide decides about one claim. doc.go has it as a table.
func Decide(now time.Time, s Sight) Verdict {
	_, marked := s.Claim.Annotations[v1alpha1.AnnotationOrphanedSince]
	if why := spared(s); why != "" {
		if marked && s.Claim.DeletionTimestamp == nil && !s.Leaving {
			return Verdict{Step: Unmark, Why: why}
		}
		return Verdict{Step: Nothing, Why: why}
	}
	since, ok := Since(s.Claim)
	if s.Remade { // whether it is one shows when that is done; the time of one that was goes on
		stamp, _ := StampOf(s.Claim)
		v := Verdict{Step: Nothing, Why: fmt.Sprintf("StatefulSet %s is being made anew", stamp.Set)}
		if ok {
			v.Step, v.Since = Wait, since
		}
		return v
	}
	switch used := lastUse(s); {
	case !marked:
		return Verdict{Step: Mark, Why: leftBehind(s)}
	case !ok:
		return Verdict{Step: Mark, Why: fmt.Sprintf("its annotation %s is %q, want a time such as %s: it begins anew", v1alpha1.AnnotationOrphanedSince, s.Claim.Annotations[v1alpha1.AnnotationOrphanedSince], now.UTC().Format(time.RFC3339))}
	case since.Before(s.Claim.CreationTimestamp.Add(-ahead)):
		return Verdict{Step: Mark, Why: fmt.Sprintf("its mark of %s is older than the claim, as on one that was put back from a backup: it begins anew", since.Format(time.RFC3339))}
	case since.After(now.Add(ahead)):
		return Verdict{Step: Mark, Why: fmt.Sprintf("it was marked at %s, which is ahead: the clock went back, and it begins anew", since.Format(time.RFC3339))}
	case used.After(since):
		return Verdict{Step: Mark, Why: fmt.Sprintf("it was used at %s: it begins anew", used.UTC().Format(time.RFC3339))}
	}
	v := func(step Step, why string, args ...any) Verdict {
		return Verdict{Step: step, Why: fmt.Sprintf(why, args...), Since: since}
	}
	from := since
	if s.Rules.Action == v1alpha1.DeleteOrphans { // nothing is left of what a use unseen has written
		from = Certain(s)
	}
	after := time.Duration(s.Rules.AfterSeconds) * time.Second
	due := from.Add(after)
	if s.Leapt > ahead { // what the clock leapt over was no time to wait
		due = due.Add(s.Leapt)
	}
	switch {
	case s.Rules.Action != v1alpha1.SnapshotThenDelete && s.Rules.Action != v1alpha1.DeleteOrphans:
		return v(Report, "it stays: the policy's action is Report")
	case now.Before(due):
		return v(Wait, "%s is due at %s", s.Rules.Action, due.UTC().Format(time.RFC3339))
	case s.Forbidden != "":
		return v(Blocked, "its deletion is refused: %s", s.Forbidden)
	}
	next := v(Delete, "nobody has used it for %s", now.Sub(from).Round(time.Second))
	if s.Rules.Action == v1alpha1.SnapshotThenDelete {
		next = bySnapshot(now, s, v)
	}
	if enough := min(after, trust); next.Step == Delete && s.Watched < enough {
		return v(Wait, "it is due, and goes once this manager has watched it for %s, by when a clock that was wrong is put right", enough)
	}
	return next
}

// bySnapshot decides about a claim that goes once a snapshot of it is ready.
func bySnapshot(now time.Time, s Sight, v func(Step, string, ...any) Verdict) Verdict {
	snap := s.Snapshot
	switch {
	case snap == nil && s.NoSnapshot != "":
		return v(Blocked, "no snapshot of it can be taken: %s", s.NoSnapshot)
	case snap == nil && now.Before(Certain(s).Add(ahead)):
		return v(Wait, "its snapshot is due at %s: the driver's clock may be behind", Certain(s).Add(ahead).UTC().Format(time.RFC3339))
	case snap == nil:
		return v(Snapshot, "a snapshot comes before its deletion")
	case !ofClaim(snap, s.Claim):
		return v(Blocked, "a VolumeSnapshot %s is there already and is none of it: delete or rename that", snap.Name)
	case snap.DeletionTimestamp != nil:
		return v(Wait, "its snapshot %s is being deleted, another will be taken", snap.Name)
	}
	c := copies.Of(snap, ready, now)
	switch certain := Certain(s); {
	case c.State != copies.Ready && c.LastError != "":
		return v(Blocked, "its snapshot %s is not ready: %s", snap.Name, c.LastError)
	case c.State == copies.Failed:
		return v(Blocked, "its snapshot %s has not been ready for over %s: see whether the snapshot-controller and the driver's csi-snapshotter run", snap.Name, ready)
	case c.State != copies.Ready:
		return v(Wait, "its snapshot %s is not ready yet", snap.Name)
	case c.At().Before(certain.Truncate(time.Second)): // as Kubernetes writes times
		return v(Blocked, "its snapshot %s was cut at %s, before it was certain that nobody uses it (%s): delete that snapshot for another", snap.Name, c.At().UTC().Format(time.RFC3339), certain.UTC().Format(time.RFC3339))
	}
	return v(Delete, "its snapshot %s of %s is ready", snap.Name, c.At().UTC().Format(time.RFC3339))
}

// spared is why a claim is no orphan; empty: it is one.
func spared(s Sight) string {
	reason, keep := s.Claim.Annotations[v1alpha1.AnnotationKeepOrphan]
	switch {
	case s.Claim.DeletionTimestamp != nil:
		return "it is being deleted"
	case s.Leaving:
		return "its namespace is being deleted"
	case keep:
		return fmt.Sprintf("its annotation %s says: %s", v1alpha1.AnnotationKeepOrphan, reason)
	}
	if why := Held(s.Claim, s.Sets); why != "" {
		return why
	}
	switch unused := unusedCondition(s.Claim); {
	case s.Rules == nil:
		return "no policy says what becomes of it"
	case len(s.Pods) > 0:
		return "Pod " + s.Pods[0] + " names it"
	case len(s.Nodes) > 0:
		return "its volume is attached to node " + s.Nodes[0]
	case len(s.Clones) > 0:
		return "claim " + s.Clones[0] + " is to be made from it"
	case unused != nil && unused.Status == corev1.ConditionFalse:
		return "Kubernetes says that it is used: " + unused.Message
	}
	return ""
}

// Held is why a claim is no orphan, by its stamp and the living sets of its
// namespace; empty: it is one unless somebody uses it.
func Held(claim *corev1.PersistentVolumeClaim, sets []appsv1.StatefulSet) string {
	stamp, ok := StampOf(claim)
	if !ok {
		return "the manager has not stamped it as a StatefulSet's"
	}
	for i := range sets {
		set := &sets[i]
		switch {
		case set.UID == stamp.SetUID && statefulset.InRange(set, stamp.Ordinal):
			return fmt.Sprintf("StatefulSet %s has ordinal %d", set.Name, stamp.Ordinal)
		case statefulset.IsClaimOfPresent(set, claim.Name):
			return fmt.Sprintf("StatefulSet %s has a Pod that takes it by its name", set.Name)
		}
	}
	return ""
}

// Stamp is what the manager wrote on the claim of a living set.
type Stamp struct {
	SetUID        types.UID
	Set, Template string
	Ordinal       int32
}

// StampOf reads the stamp of a claim. One that is not whole, or does not fit the
// claim's name, is none.
func StampOf(claim *corev1.PersistentVolumeClaim) (Stamp, bool) {
	a := claim.Annotations
	s := Stamp{SetUID: types.UID(a[v1alpha1.AnnotationSetUID]), Set: a[v1alpha1.AnnotationSetName], Template: a[v1alpha1.AnnotationSetTemplate]}
	var ok bool
	s.Ordinal, ok = statefulset.OrdinalOf(claim.Name, s.Template, s.Set)
	return s, ok && s.SetUID != "" && s.Set != "" && s.Template != "" && a[v1alpha1.AnnotationSetOrdinal] == strconv.Itoa(int(s.Ordinal))
}

// leftBehind says why a claim is an orphan.
func leftBehind(s Sight) string {
	stamp, _ := StampOf(s.Claim)
	if slices.ContainsFunc(s.Sets, func(set appsv1.StatefulSet) bool { return set.UID == stamp.SetUID }) {
		return fmt.Sprintf("StatefulSet %s has no ordinal %d any more", stamp.Set, stamp.Ordinal)
	}
	return fmt.Sprintf("StatefulSet %s, whose ordinal %d it was of, is gone", stamp.Set, stamp.Ordinal)
}

// Since reads since when a claim has been an orphan, to the second, as it is
// written. A time before 1970 nobody has written: it could not stand in a status
// (metav1.Time writes the zero time as null).
func Since(claim *corev1.PersistentVolumeClaim) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, claim.Annotations[v1alpha1.AnnotationOrphanedSince])
	if err != nil || at.Unix() <= 0 {
		return time.Time{}, false
	}
	return at.Truncate(time.Second), true
}

// lastUse is when a claim was last used, as far as is known; zero: it is not.
// Kubernetes 1.37 and newer tell it by the condition Unused, also of a time when
// no manager watched (KEP-5541).
func lastUse(s Sight) time.Time {
	used := s.LastUse
	if c := unusedCondition(s.Claim); c != nil && c.LastTransitionTime.After(used) {
		used = c.LastTransitionTime.Time
	}
	return used
}

// unusedCondition is what Kubernetes says of a claim's use; nil: nothing.
func unusedCondition(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == corev1.PersistentVolumeClaimUnused {
			return c
		}
	}
	return nil
}

// Certain is since when it is certain that nobody has used an orphan: what is cut
// later holds all its data. The mark alone does not tell, where Kubernetes does not
// tell either: while no manager ran, the set may have been scaled up and down again.
func Certain(s Sight) time.Time {
	since, _ := Since(s.Claim)
	if unusedCondition(s.Claim) == nil && s.WatchedSince.After(since) {
		return s.WatchedSince
	}
	return since
}

// SnapshotName is the name of the snapshot that an orphan is deleted after. It
// follows from the claim and from since when it is certain that nobody uses it:
// one that is asked for again is the same, and one that was taken before that is not.
func SnapshotName(s Sight) string {
	return copies.Name(s.Claim.Name, s.Claim.UID, "", "orphan-"+copies.SlotOf(Certain(s)))
}

// ofClaim says whether a snapshot is the one that was taken of this very claim.
func ofClaim(snap *snapshotv1.VolumeSnapshot, claim *corev1.PersistentVolumeClaim) bool {
	source := snap.Spec.Source.PersistentVolumeClaimName
	return source != nil && *source == claim.Name && snap.Labels[v1alpha1.LabelClaimUID] == string(claim.UID) && snap.Labels[v1alpha1.LabelOrphanOf] != ""
}

// describe cuts a text to what an event holds.
func describe(text string) string {
	if len(text) <= maxEvent {
		return text
	}
	return strings.ToValidUTF8(text[:maxEvent], "")
}
