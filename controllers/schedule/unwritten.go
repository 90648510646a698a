package schedule

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// progressWithin is when the progress of a run is written at the latest. The copies
// of a run become ready one after the other, and to write each time would cost the
// API server more than their creation.
const progressWithin = time.Minute

// unwritten remembers since when a status differs from the stored one by progress
// alone. With the process that is forgotten, and the time begins anew.
type unwritten struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// wait is how long the status of a schedule is not written yet; 0: it is now.
func (u *unwritten) wait(schedule types.NamespacedName, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, known := u.since[schedule]
	if !known || now.Before(since) { // the first time, or the clock went back
		since = now
	}
	if u.since == nil {
		u.since = map[types.NamespacedName]time.Time{}
	}
	u.since[schedule] = since
	return max(since.Add(progressWithin).Sub(now), 0)
}

// written ends it.
func (u *unwritten) written(schedule types.NamespacedName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, schedule)
}

// onlyProgress says whether a status differs from the stored one by nothing but
// how far a run has come that goes on. Its beginning is no more than that: a run
// begins when its first copies are asked for. Not among it are its end, and all
// that is told or that somebody has to mend; nor with catchUp None that the next
// run moved on, which says that this one was looked at in time.
func onlyProgress(catchUp v1alpha1.CatchUp, stored, status v1alpha1.SnapshotScheduleStatus) bool {
	waits := func(c v1alpha1.ClaimSnapshots) bool { return c.Reason == v1alpha1.ClaimWaits }
	if status.PendingCount == 0 && !slices.ContainsFunc(status.Claims, waits) || equality.Semantic.DeepEqual(stored, status) {
		return false
	}
	then, now := *stored.DeepCopy(), *status.DeepCopy()
	then.LastSuccessfulTime, then.ReadyCount, then.PendingCount = now.LastSuccessfulTime, now.ReadyCount, now.PendingCount
	if catchUp != v1alpha1.CatchUpNone {
		then.NextScheduleTime = now.NextScheduleTime
	}
	then.Claims, now.Claims = slices.DeleteFunc(then.Claims, waits), slices.DeleteFunc(now.Claims, waits)
	for i := range then.Conditions {
		// What a message names moves on; that it is another matter says the reason.
		if c := meta.FindStatusCondition(now.Conditions, then.Conditions[i].Type); c != nil {
			then.Conditions[i].Message = c.Message
		}
	}
	return equality.Semantic.DeepEqual(then, now)
}
