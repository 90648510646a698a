package schedule

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// Reasons of events on a SnapshotSchedule.
const (
	eventTaken   = "SnapshotsTaken"
	eventCut     = "GroupsCut"
	eventMissed  = "MissedRuns"
	eventFailed  = "SnapshotFailed"
	eventRefused = "SnapshotRefused"
	eventInvalid = "InvalidSpec"
)

// maxTold is how many claims are told as events of their own in one look; the
// status has the rest.
const maxTold = 10

// tell tells what the status that was just written says for the first time.
func (r *Reconciler) tell(s *v1alpha1.SnapshotSchedule, status v1alpha1.SnapshotScheduleStatus, f Found) {
	if f.Plan.Missed > 0 {
		r.metrics.missed.WithLabelValues(s.Namespace, s.Name).Add(float64(f.Plan.Missed))
		r.event(s, nil, corev1.EventTypeWarning, eventMissed, "Run "+copies.SlotOf(f.Plan.NewestMissed), missedNote(f.Plan))
	}
	for _, slot := range over(s.Status, status) {
		if n := ofRun(f, slot); n > 0 {
			r.event(s, nil, corev1.EventTypeNormal, eventTaken, "Run "+slot, fmt.Sprintf("run %s: %d of %d claims have their VolumeSnapshot", slot, n, len(f.Seen.Candidates)))
		}
	}
	if c, old := status.LastGroupCut, s.Status.LastGroupCut; c != nil && (old == nil || *old != *c) {
		r.event(s, nil, corev1.EventTypeNormal, eventCut, "Run "+c.Slot, cutNote(c))
	}
	told := 0
	for _, c := range status.Claims {
		reason, is := news(s.Status, c)
		switch {
		case !is:
			continue
		case told == maxTold:
			r.event(s, nil, corev1.EventTypeWarning, reason, "Report", "more claims are not copied as they should be: status.claims has the worst 100")
			return
		}
		told++
		r.event(s, claimRef(s.Namespace, c), corev1.EventTypeWarning, reason, "Report", "claim "+c.Name+": "+c.Message)
	}
}

// over are the runs that are over as of the new status.
func over(old, now v1alpha1.SnapshotScheduleStatus) []string {
	var slots []string
	if !now.LastScheduleTime.Equal(old.LastScheduleTime) && now.LastScheduleTime != nil {
		slots = append(slots, copies.SlotOf(now.LastScheduleTime.Time))
	}
	if now.LastRunToken != old.LastRunToken {
		slots = append(slots, copies.RunOf(now.LastRunToken))
	}
	return slots
}

// ofRun counts the copies of a run.
func ofRun(f Found, slot string) int {
	n := 0
	for _, c := range f.Seen.Copies {
		if c.Slot == slot {
			n++
		}
	}
	return n
}

func cutNote(c *v1alpha1.GroupCut) string {
	return fmt.Sprintf("run %s: %d groups were cut as VolumeGroupSnapshots and %d one claim after the other; the cuts of a group are at most %d seconds apart", c.Slot, c.GroupCount, c.SeriesCount, c.SpreadSeconds)
}

func missedNote(p Plan) string {
	return fmt.Sprintf("%d runs were missed, the newest of them at %s: no manager ran then, or no copy could be asked for within startingDeadlineSeconds", p.Missed, p.NewestMissed.UTC().Format(time.RFC3339))
}

// news says whether a claim's trouble is told, and under which reason: once for
// each copy that failed, and once for each stretch of refusals.
func news(old v1alpha1.SnapshotScheduleStatus, c v1alpha1.ClaimSnapshots) (reason string, is bool) {
	switch c.Reason {
	case v1alpha1.ClaimFailed:
		reason = eventFailed
	case v1alpha1.ClaimRefused:
		reason = eventRefused
	default:
		return "", false
	}
	for _, before := range old.Claims {
		if before.UID == c.UID && before.Reason == c.Reason {
			return reason, c.Reason == v1alpha1.ClaimFailed && failedCopy(before) != failedCopy(c)
		}
	}
	return reason, true
}

// failedCopy is the copy that a message of Report about one that failed begins
// with, by kind and name.
func failedCopy(c v1alpha1.ClaimSnapshots) string {
	words := strings.SplitN(c.Message, " ", 3)
	return strings.Join(words[:min(len(words), 2)], " ")
}

// tellInvalid tells of a stored spec that cannot be acted on.
func (r *Reconciler) tellInvalid(s *v1alpha1.SnapshotSchedule, errs field.ErrorList) {
	r.event(s, nil, corev1.EventTypeWarning, eventInvalid, "Compile", "nothing is copied and nothing is deleted: "+errs.ToAggregate().Error())
}

// event writes an event on a schedule. Client-go counts events alike, whatever
// their note: what is to be told each time has an action of its own.
func (r *Reconciler) event(s *v1alpha1.SnapshotSchedule, related runtime.Object, kind, reason, action, note string) {
	r.events.Eventf(s, related, kind, reason, action, "%s", cut(note))
}

// claimRef is a claim as far as an event needs it.
func claimRef(namespace string, c v1alpha1.ClaimSnapshots) runtime.Object {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name, UID: c.UID},
	}
}
