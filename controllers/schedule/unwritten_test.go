package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// TestOnlyProgress: what of a status may wait to be written.
func TestOnlyProgress(t *testing.T) {
	at := func(text string) *metav1.Time { return &metav1.Time{Time: today(text)} }
	waiting := v1alpha1.ClaimSnapshots{UID: "a", Name: "a", Reason: v1alpha1.ClaimWaits, Message: "no room"}
	failed := v1alpha1.ClaimSnapshots{UID: "b", Name: "b", Reason: v1alpha1.ClaimFailed, Message: "VolumeSnapshot b"}
	stored := v1alpha1.SnapshotScheduleStatus{
		ObservedGeneration: 7, ClaimCount: 5, PendingCount: 3, ReadyCount: 9, LastScheduleTime: at("10:00:00"), NextScheduleTime: at("11:00:00"),
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonActive, Message: "next run at 11:00", ObservedGeneration: 7}},
		Claims:     []v1alpha1.ClaimSnapshots{failed},
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SnapshotScheduleStatus)
		want   bool
	}{
		"nothing": {func(*v1alpha1.SnapshotScheduleStatus) {}, false},
		"one is ready": {func(s *v1alpha1.SnapshotScheduleStatus) {
			s.PendingCount, s.ReadyCount, s.LastSuccessfulTime = 2, 10, at("10:05:00")
		}, true},
		"the last is": {func(s *v1alpha1.SnapshotScheduleStatus) { s.PendingCount, s.ReadyCount = 0, 12 }, false},
		"claims wait": {func(s *v1alpha1.SnapshotScheduleStatus) { s.Claims = []v1alpha1.ClaimSnapshots{failed, waiting} }, true},
		"all of them wait": {func(s *v1alpha1.SnapshotScheduleStatus) {
			s.PendingCount, s.Claims = 0, []v1alpha1.ClaimSnapshots{failed, waiting}
		}, true},
		"the next run moves on": {func(s *v1alpha1.SnapshotScheduleStatus) {
			s.NextScheduleTime, s.Conditions[0].Message = at("12:00:00"), "next run at 12:00"
		}, true},
		"a run is over":    {func(s *v1alpha1.SnapshotScheduleStatus) { s.LastScheduleTime = at("11:00:00") }, false},
		"a run by hand is": {func(s *v1alpha1.SnapshotScheduleStatus) { s.LastRunToken = "now" }, false},
		"one failed":       {func(s *v1alpha1.SnapshotScheduleStatus) { s.PendingCount, s.FailedCount = 2, 1 }, false},
		"a claim is refused": {func(s *v1alpha1.SnapshotScheduleStatus) {
			s.Claims = append(s.Claims, v1alpha1.ClaimSnapshots{UID: "c", Reason: v1alpha1.ClaimRefused})
		}, false},
		"a claim is mended":   {func(s *v1alpha1.SnapshotScheduleStatus) { s.Claims = nil }, false},
		"a claim is new":      {func(s *v1alpha1.SnapshotScheduleStatus) { s.ClaimCount++ }, false},
		"runs were missed":    {func(s *v1alpha1.SnapshotScheduleStatus) { s.MissedSlots++ }, false},
		"groups were cut":     {func(s *v1alpha1.SnapshotScheduleStatus) { s.LastGroupCut = &v1alpha1.GroupCut{Slot: "s"} }, false},
		"a condition turns":   {func(s *v1alpha1.SnapshotScheduleStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, false},
		"its reason is other": {func(s *v1alpha1.SnapshotScheduleStatus) { s.Conditions[0].Reason = v1alpha1.ReasonClockBehind }, false},
		"a condition is new": {func(s *v1alpha1.SnapshotScheduleStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "New"})
		}, false},
		"the spec was changed": {func(s *v1alpha1.SnapshotScheduleStatus) { s.ObservedGeneration++ }, false},
		"it is active since":   {func(s *v1alpha1.SnapshotScheduleStatus) { s.ActiveSince = at("10:30:00") }, false},
	} {
		now := *stored.DeepCopy()
		tc.change(&now)
		before, after := *stored.DeepCopy(), *now.DeepCopy()
		if got := onlyProgress(v1alpha1.CatchUpLatest, before, after); got != tc.want {
			t.Errorf("%s: may wait: %t, want %t", name, got, tc.want)
		}
		// By it a run that was looked at in time is told from one that was missed.
		moved := !now.NextScheduleTime.Equal(stored.NextScheduleTime)
		if got, want := onlyProgress(v1alpha1.CatchUpNone, stored, now), tc.want && !moved; got != want {
			t.Errorf("%s, with catchUp None: may wait: %t, want %t", name, got, want)
		}
	}
}

// TestUnwritten: progress waits for a minute since the first of it, and
// not at all once the clock has gone that far.
func TestUnwritten(t *testing.T) {
	var u unwritten
	key := types.NamespacedName{Namespace: "db", Name: "hourly"}
	for _, step := range []struct {
		why  string
		at   string
		want time.Duration
	}{
		{"the first", "11:00:00", time.Minute},
		{"more of it does not put it off", "11:00:20", 40 * time.Second},
		{"the time is over", "11:01:00", 0},
		{"and stays so until it is written", "11:01:10", 0},
	} {
		if got := u.wait(key, today(step.at)); got != step.want {
			t.Errorf("%s: waits %v, want %v", step.why, got, step.want)
		}
	}
	if got := u.wait(key, today("10:00:00")); got != progressWithin {
		t.Errorf("the clock went back: waits %v", got)
	}
	u.written(key)
	if got := u.wait(key, today("11:01:11")); got != progressWithin || len(u.since) != 1 {
		t.Errorf("written, and then waits %v", got)
	}
}
