package orphan

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
)

var now = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// ago is a time before now, as an annotation has it.
func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

// set is a StatefulSet pg with some replicas.
func set(uid types.UID, replicas int32, changes ...func(*appsv1.StatefulSet)) appsv1.StatefulSet {
	s := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "pg", UID: uid}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
	}}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// claim is data-pg-2, stamped, with more annotations: key, value, ….
func claimWith(annotations ...string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "data-pg-2", UID: "claim", Annotations: map[string]string{
		v1alpha1.AnnotationSetUID: "set", v1alpha1.AnnotationSetName: "pg", v1alpha1.AnnotationSetTemplate: "data", v1alpha1.AnnotationSetOrdinal: "2",
	}}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	for i := 0; i < len(annotations); i += 2 {
		if annotations[i+1] == "" {
			delete(c.Annotations, annotations[i])
		} else {
			c.Annotations[annotations[i]] = annotations[i+1]
		}
	}
	return c
}

// left is a claim that was left behind an hour ago, by a set that was scaled down.
func left(change func(*Sight)) Sight {
	s := Sight{
		Claim: claimWith(v1alpha1.AnnotationOrphanedSince, ago(time.Hour)), Sets: []appsv1.StatefulSet{set("set", 2)},
		Rules: &v1alpha1.PolicyOrphans{AfterSeconds: 600, Action: v1alpha1.SnapshotThenDelete}, WatchedSince: now.Add(-24 * time.Hour), Watched: time.Hour,
	}
	change(&s)
	return s
}

// snap is the claim's snapshot, asked for and cut so long ago.
func snap(asked, cut time.Duration, ready bool) *snapshotv1.VolumeSnapshot {
	s := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "copy", CreationTimestamp: metav1.NewTime(now.Add(-asked)), Labels: map[string]string{v1alpha1.LabelClaimUID: "claim", v1alpha1.LabelOrphanOf: "pg"}},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data-pg-2")}},
		Status:     &snapshotv1.VolumeSnapshotStatus{ReadyToUse: &ready},
	}
	if cut != 0 {
		s.Status.CreationTime = &metav1.Time{Time: now.Add(-cut)}
	}
	return s
}

func unused(status corev1.ConditionStatus, since time.Duration) []corev1.PersistentVolumeClaimCondition {
	return []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-since)), Message: "so it is"}}
}

// TestDecide is the table of doc.go.
func TestDecide(t *testing.T) {
	mark := v1alpha1.AnnotationOrphanedSince
	for name, tc := range map[string]struct {
		why  string
		seen Sight
		want Step
		says string
	}{
		"no mark":                 {"it begins when it is first seen", left(func(s *Sight) { s.Claim = claimWith() }), Mark, "has no ordinal 2 any more"},
		"set gone":                {"by its UID", left(func(s *Sight) { s.Claim, s.Sets = claimWith(), nil }), Mark, "is gone"},
		"set of other UID":        {"a set made again under the name, smaller", left(func(s *Sight) { s.Claim = claimWith(); s.Sets[0].UID = "other" }), Mark, "is gone"},
		"range that moved":        {"ordinals.start counts", left(func(s *Sight) { s.Claim = claimWith(); s.Sets[0].Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3} }), Mark, "has no ordinal 2"},
		"no replicas said":        {"the API's default is one", left(func(s *Sight) { s.Claim = claimWith(); s.Sets[0].Spec.Replicas = nil }), Mark, "has no ordinal 2"},
		"unreadable mark":         {"a mark that says nothing ages nothing", left(func(s *Sight) { s.Claim.Annotations[mark] = "yesterday" }), Mark, `"yesterday"`},
		"mark of the future":      {"it would keep the claim for as long", left(func(s *Sight) { s.Claim.Annotations[mark] = ago(-time.Hour) }), Mark, "clock went back"},
		"mark ahead a little":     {"clocks differ", left(func(s *Sight) { s.Claim.Annotations[mark] = ago(-30 * time.Second) }), Wait, "due at"},
		"mark of year 1":          {"what no status can hold is no mark", left(func(s *Sight) { s.Claim.Annotations[mark] = "0001-01-01T00:00:00Z" }), Mark, "0001-01-01"},
		"put back from a backup":  {"with the annotations of long ago", left(func(s *Sight) { s.Claim.CreationTimestamp = metav1.NewTime(now.Add(-58 * time.Minute)) }), Mark, "older than the claim"},
		"made and marked at once": {"clocks differ", left(func(s *Sight) { s.Claim.CreationTimestamp = metav1.NewTime(now.Add(-59 * time.Minute)) }), Snapshot, ""},
		"used since":              {"a Pod came and went between two sweeps", left(func(s *Sight) { s.LastUse = now.Add(-time.Minute) }), Mark, "used at"},
		"used before":             {"the last Pod went before the mark", left(func(s *Sight) { s.LastUse = now.Add(-2 * time.Hour) }), Snapshot, ""},
		"used, says Kubernetes":   {"while no manager ran", left(func(s *Sight) { s.Claim.Status.Conditions = unused(corev1.ConditionTrue, time.Minute) }), Mark, "used at"},

		"unstamped":       {"names alone do not tell", left(func(s *Sight) { s.Claim = claimWith(v1alpha1.AnnotationSetUID, "") }), Nothing, "not stamped"},
		"unstamped, mark": {"the mark goes with the stamp", left(func(s *Sight) { s.Claim = claimWith(v1alpha1.AnnotationSetUID, "", mark, ago(time.Hour)) }), Unmark, "not stamped"},
		"odd ordinal":     {"a stamp that does not fit the name is none", left(func(s *Sight) { s.Claim.Annotations[v1alpha1.AnnotationSetOrdinal] = "1" }), Unmark, "not stamped"},
		"odd template":    {"likewise", left(func(s *Sight) { s.Claim.Annotations[v1alpha1.AnnotationSetTemplate] = "logs" }), Unmark, "not stamped"},
		"in range":        {"scaled up again", left(func(s *Sight) { s.Sets = []appsv1.StatefulSet{set("set", 3)} }), Unmark, "has ordinal 2"},
		"adopted":         {"a set made again takes it by its name, stamped or not", left(func(s *Sight) { s.Sets = []appsv1.StatefulSet{set("other", 3)} }), Unmark, "by its name"},
		"two sets": {"another set takes it", left(func(s *Sight) {
			s.Sets = append(s.Sets, set("x", 9, func(o *appsv1.StatefulSet) { o.Name, o.Spec.VolumeClaimTemplates[0].Name = "pg", "data" }))
		}), Unmark, "by its name"},
		"set being deleted": {"its Pods are there still", left(func(s *Sight) {
			s.Sets = []appsv1.StatefulSet{set("set", 3, func(o *appsv1.StatefulSet) { o.DeletionTimestamp = &metav1.Time{Time: now} })}
		}), Unmark, "has ordinal 2"},
		"mounted":             {"by any Pod, such as one that somebody made to look", left(func(s *Sight) { s.Pods = []string{"shell"} }), Unmark, "Pod shell"},
		"attached":            {"a Pod may be on its way out", left(func(s *Sight) { s.Nodes = []string{"n1"} }), Unmark, "node n1"},
		"said to be used":     {"Kubernetes knows of a Pod that we do not", left(func(s *Sight) { s.Claim.Status.Conditions = unused(corev1.ConditionFalse, time.Hour) }), Unmark, "so it is"},
		"kept":                {"somebody said so", left(func(s *Sight) { s.Claim.Annotations[v1alpha1.AnnotationKeepOrphan] = "for the audit" }), Unmark, "for the audit"},
		"kept, empty":         {"without a reason too", left(func(s *Sight) { s.Claim.Annotations[v1alpha1.AnnotationKeepOrphan] = "" }), Unmark, v1alpha1.AnnotationKeepOrphan},
		"made anew, no mark":  {"between its deletion and its creation a set is not there", left(func(s *Sight) { s.Claim, s.Sets, s.Remade = claimWith(), nil, true }), Nothing, "StatefulSet pg is being made anew"},
		"made anew":           {"whatever else is due", left(func(s *Sight) { s.Sets, s.Remade, s.Snapshot = nil, true, snap(time.Minute, time.Minute, true) }), Wait, "StatefulSet pg is being made anew"},
		"made anew, odd mark": {"it is not marked anew either", left(func(s *Sight) { s.Claim.Annotations[mark], s.Remade = "yesterday", true }), Nothing, "made anew"},
		"made anew, mounted":  {"it is used: that is known", left(func(s *Sight) { s.Remade, s.Pods = true, []string{"pg-2"} }), Unmark, "Pod pg-2"},
		"no policy":           {"nobody watches any more", left(func(s *Sight) { s.Rules = nil }), Unmark, "no policy"},
		"being deleted":       {"it goes anyway, and is not written to", left(func(s *Sight) { s.Claim.DeletionTimestamp = &metav1.Time{Time: now} }), Nothing, "being deleted"},
		"with namespace":      {"likewise", left(func(s *Sight) { s.Leaving = true }), Nothing, "namespace"},

		"report":             {"the default", left(func(s *Sight) { s.Rules.Action = v1alpha1.ReportOrphans }), Report, "Report"},
		"action of tomorrow": {"an action that is not known does nothing", left(func(s *Sight) { s.Rules.Action = "Archive" }), Report, "Report"},
		"young":              {"not due", left(func(s *Sight) { s.Rules.AfterSeconds = 3601 }), Wait, "due at"},
		"due":                {"to the second", left(func(s *Sight) { s.Rules.AfterSeconds = 3600 }), Snapshot, "before its deletion"},
		"forbidden":          {"a snapshot would be in vain", left(func(s *Sight) { s.Forbidden = "rule deletion" }), Blocked, "rule deletion"},
		"Delete":             {"without a snapshot", left(func(s *Sight) { s.Rules.Action = v1alpha1.DeleteOrphans }), Delete, "1h0m0s"},
		"Delete, unwatched": {"the set may have been up while nobody watched, and no snapshot has what it wrote", left(func(s *Sight) {
			s.Rules.Action, s.WatchedSince = v1alpha1.DeleteOrphans, now.Add(-10*time.Minute+time.Second)
		}), Wait, "due at 2027-03-01T12:00:01Z"},
		"Delete, watched": {"for as long as the policy says", left(func(s *Sight) { s.Rules.Action, s.WatchedSince = v1alpha1.DeleteOrphans, now.Add(-10*time.Minute) }), Delete, "10m0s"},
		"Delete, told": {"Kubernetes watched", left(func(s *Sight) {
			s.Rules.Action, s.WatchedSince = v1alpha1.DeleteOrphans, now
			s.Claim.Status.Conditions = unused(corev1.ConditionTrue, 2*time.Hour)
		}), Delete, "1h0m0s"},
		"Delete, just seen": {"the clock of this process may be wrong", left(func(s *Sight) { s.Rules.Action, s.Watched = v1alpha1.DeleteOrphans, trust-time.Second }), Wait, "has watched it for 10m0s"},
		"ready, just seen":  {"likewise", left(func(s *Sight) { s.Snapshot, s.Watched = snap(time.Minute, time.Minute, true), 0 }), Wait, "has watched it for 10m0s"},
		"due, just seen":    {"a snapshot takes nothing away", left(func(s *Sight) { s.Watched = 0 }), Snapshot, ""},
		"seen for long enough": {"the policy gives it less", left(func(s *Sight) {
			s.Rules.Action, s.Rules.AfterSeconds, s.Watched = v1alpha1.DeleteOrphans, 60, time.Minute
		}), Delete, "1h0m0s"},
		"clock leapt":          {"no time went by", left(func(s *Sight) { s.Rules.Action, s.Leapt = v1alpha1.DeleteOrphans, 55*time.Minute }), Wait, "due at 2027-03-01T12:05:00Z"},
		"clock leapt a little": {"it was put right", left(func(s *Sight) { s.Rules.AfterSeconds, s.Leapt = 3600, ahead }), Snapshot, ""},
		"clock went back":      {"it is young then", left(func(s *Sight) { s.Rules.AfterSeconds, s.Leapt = 3600, -time.Hour }), Snapshot, ""},
		"Delete, forbidden":    {"the same guard", left(func(s *Sight) { s.Rules.Action, s.Forbidden = v1alpha1.DeleteOrphans, "rule deletion" }), Blocked, "rule deletion"},
		"no class":             {"it stays", left(func(s *Sight) { s.NoSnapshot = "no class" }), Blocked, "no class"},
		"certain just now":     {"a driver whose clock is behind would say that it was cut before", left(func(s *Sight) { s.WatchedSince = now.Add(time.Second - ahead) }), Wait, "its snapshot is due at 2027-03-01T12:00:01Z"},
		"certain":              {"for a minute", left(func(s *Sight) { s.WatchedSince = now.Add(-ahead) }), Snapshot, ""},
		"in the making":        {"it waits", left(func(s *Sight) { s.Snapshot = snap(time.Minute, time.Minute, false) }), Wait, "not ready yet"},
		"a day in the making": {"somebody has to look", left(func(s *Sight) {
			s.Claim.Annotations[mark], s.Snapshot = ago(48*time.Hour), snap(ready, 0, false)
		}), Blocked, "whether the snapshot-controller"},
		"nearly a day": {"it may be large", left(func(s *Sight) {
			s.Claim.Annotations[mark], s.Snapshot = ago(48*time.Hour), snap(ready-time.Second, 0, false)
		}), Wait, "not ready yet"},
		"ready after all": {"it is never too late", left(func(s *Sight) {
			s.Claim.Annotations[mark], s.WatchedSince, s.Snapshot = ago(48*time.Hour), time.Time{}, snap(ready+time.Hour, ready, true)
		}), Delete, "is ready"},
		"failing": {"it stays, and the snapshotter tries again", left(func(s *Sight) {
			s.Snapshot = snap(time.Minute, 0, false)
			s.Snapshot.Status.Error = &snapshotv1.VolumeSnapshotError{Message: ptr.To("throttled")}
		}), Blocked, "throttled"},
		"ready":          {"now it may go", left(func(s *Sight) { s.Snapshot = snap(time.Minute, time.Minute, true) }), Delete, "is ready"},
		"ready, no time": {"it was asked for after the last use", left(func(s *Sight) { s.Snapshot = snap(time.Minute, 0, true) }), Delete, "is ready"},
		"of before":      {"what was written since is not in it", left(func(s *Sight) { s.Snapshot = snap(2*time.Hour, 2*time.Hour, true) }), Blocked, "before it was certain"},
		"cut of before":  {"likewise, though it was asked for later", left(func(s *Sight) { s.Snapshot = snap(time.Minute, 2*time.Hour, true) }), Blocked, "before it was certain"},
		"before this process": {"the set may have been up while nobody watched", left(func(s *Sight) {
			s.Snapshot, s.WatchedSince = snap(time.Minute*5, time.Minute*5, true), now.Add(-time.Minute)
		}), Blocked, "before it was certain"},
		"before this process, told": {"Kubernetes watched", left(func(s *Sight) {
			s.Snapshot, s.WatchedSince = snap(time.Minute*5, time.Minute*5, true), now.Add(-time.Minute)
			s.Claim.Status.Conditions = unused(corev1.ConditionTrue, 2*time.Hour)
		}), Delete, "is ready"},
		"a stranger's": {"the name alone does not tell", left(func(s *Sight) {
			s.Snapshot = snap(time.Minute, time.Minute, true)
			s.Snapshot.Labels = nil
		}), Blocked, "none of it"},
		"of the claim before": {"a claim made again under the name has other data", left(func(s *Sight) {
			s.Snapshot = snap(time.Minute, time.Minute, true)
			s.Snapshot.Labels[v1alpha1.LabelClaimUID] = "other"
		}), Blocked, "none of it"},
		"deleted under way": {"it will not be there", left(func(s *Sight) {
			s.Snapshot = snap(time.Minute, time.Minute, true)
			s.Snapshot.DeletionTimestamp = &metav1.Time{Time: now}
		}), Wait, "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(now, tc.seen)
			if got.Step != tc.want || !strings.Contains(got.Why, tc.says) {
				t.Errorf("%s: step %d, %q; want step %d, with %q", tc.why, got.Step, got.Why, tc.want, tc.says)
			}
			if orphan := got.Step >= Wait; orphan == got.Since.IsZero() {
				t.Errorf("step %d, and an orphan since %v", got.Step, got.Since)
			}
		})
	}
}

// anything makes up a claim and what surrounds it.
func anything(r *rand.Rand) Sight {
	some := func(odds int) bool { return r.IntN(odds) == 0 }
	at := func() time.Duration { return time.Duration(r.IntN(4*3600)-600) * time.Second }
	s := Sight{Claim: claimWith(), WatchedSince: now.Add(-at()), Watched: at()}
	if some(4) {
		s.Leapt = at()
	}
	ordinal := r.IntN(4)
	s.Claim.Name = fmt.Sprint("data-pg-", ordinal)
	s.Claim.Annotations[v1alpha1.AnnotationSetOrdinal] = strconv.Itoa(ordinal)
	if some(8) {
		for key := range s.Claim.Annotations { // one of them
			delete(s.Claim.Annotations, key)
			break
		}
	}
	if !some(4) {
		s.Claim.Annotations[v1alpha1.AnnotationOrphanedSince] = ago(at())
	}
	if some(10) {
		s.Claim.Annotations[v1alpha1.AnnotationKeepOrphan] = "x"
	}
	if some(10) {
		s.Claim.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if some(3) {
		s.Claim.Status.Conditions = unused([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse}[r.IntN(3)], at())
	}
	if !some(8) {
		s.Rules = &v1alpha1.PolicyOrphans{AfterSeconds: int32(60 + r.IntN(7200)), Action: []v1alpha1.OrphanAction{v1alpha1.ReportOrphans, v1alpha1.SnapshotThenDelete, v1alpha1.SnapshotThenDelete, v1alpha1.DeleteOrphans}[r.IntN(4)]}
	}
	for range r.IntN(3) {
		s.Sets = append(s.Sets, set([]types.UID{"set", "other"}[r.IntN(2)], int32(r.IntN(3)), func(o *appsv1.StatefulSet) {
			o.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(r.IntN(2))}
		}))
	}
	s.Leaving, s.Remade = some(10), some(10)
	if some(6) {
		s.Pods = []string{"p"}
	}
	if some(6) {
		s.Nodes = []string{"n"}
	}
	if some(10) {
		s.Clones = []string{"c"}
	}
	if some(3) {
		s.LastUse = now.Add(-at())
	}
	if !some(3) {
		cut := at() + time.Millisecond // 0 would be none
		s.Snapshot = snap(min(cut+time.Duration(r.IntN(100))*time.Second, cut), cut, !some(4))
		s.Snapshot.Spec.Source.PersistentVolumeClaimName = &s.Claim.Name
		if some(8) {
			s.Snapshot.Labels[v1alpha1.LabelClaimUID] = "other"
		}
	}
	if some(8) {
		s.Forbidden = "no"
	}
	return s
}

// TestNeverDeletesWhatIsNeeded: whatever there is, what is deleted is stamped, in
// no set's range, unused, old enough and allowed to go; and its copy is ready and
// younger than its last use.
func TestNeverDeletesWhatIsNeeded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	steps := map[Step]int{}
	for range 200_000 {
		s := anything(r)
		v := Decide(now, s)
		steps[v.Step]++
		if v.Step != Delete {
			continue
		}
		c, a := s.Claim, s.Claim.Annotations
		since, err := time.Parse(time.RFC3339, a[v1alpha1.AnnotationOrphanedSince])
		ordinal, odd := strconv.Atoi(a[v1alpha1.AnnotationSetOrdinal])
		for what, broken := range map[string]bool{
			"unmarked":           err != nil,
			"unstamped":          odd != nil || a[v1alpha1.AnnotationSetUID] == "" || c.Name != a[v1alpha1.AnnotationSetTemplate]+"-"+a[v1alpha1.AnnotationSetName]+"-"+a[v1alpha1.AnnotationSetOrdinal],
			"in use":             len(s.Pods)+len(s.Nodes) > 0,
			"of a set made anew": s.Remade,
			"going already":      c.DeletionTimestamp != nil || s.Leaving,
			"kept":               a[v1alpha1.AnnotationKeepOrphan] != "",
			"not asked for":      s.Rules == nil || s.Rules.Action == v1alpha1.ReportOrphans,
			"forbidden":          s.Forbidden != "",
			"young":              s.Rules != nil && now.Sub(since) < time.Duration(s.Rules.AfterSeconds)*time.Second,
			"used since":         s.LastUse.After(since),
		} {
			if broken {
				t.Fatalf("a claim is deleted that is %s: %+v", what, s)
			}
		}
		for _, set := range s.Sets { // here all sets are of the claim's template and name
			if start := int(set.Spec.Ordinals.Start); ordinal >= start && ordinal < start+int(*set.Spec.Replicas) {
				t.Fatalf("a claim is deleted that a set has: %+v", s)
			}
		}
		for _, cond := range c.Status.Conditions {
			if cond.Status == corev1.ConditionFalse || cond.LastTransitionTime.After(since) {
				t.Fatalf("a claim is deleted that Kubernetes says was used: %+v", s)
			}
		}
		if s.Rules.Action == v1alpha1.SnapshotThenDelete {
			last := since
			if len(c.Status.Conditions) == 0 && s.WatchedSince.After(last) {
				last = s.WatchedSince
			}
			if s.Snapshot == nil || !*s.Snapshot.Status.ReadyToUse || s.Snapshot.Status.CreationTime.Time.Before(last) || s.Snapshot.Labels[v1alpha1.LabelClaimUID] != "claim" {
				t.Fatalf("a claim is deleted without a good copy: %+v", s)
			}
		}
	}
	for step := Nothing; step <= Delete; step++ {
		if steps[step] < 100 {
			t.Errorf("step %d was decided %d times: what was made up shows little of it", step, steps[step])
		}
	}
}

// TestUseAhead: a use that a clock noted which was ahead is one of now when that
// has gone back, and stays that.
func TestUseAhead(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now.Add(7 * 24 * time.Hour))
	u := &uses{clock: clk, at: map[client.ObjectKey]time.Time{}}
	key := client.ObjectKey{Namespace: "db", Name: "data-pg-2"}
	u.note(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-2"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: key.Name}}},
	}}})
	if got := u.last(key); !got.Equal(now.Add(7 * 24 * time.Hour)) {
		t.Errorf("the last use was at %v", got)
	}
	for _, later := range []time.Duration{0, time.Minute} {
		clk.SetTime(now.Add(later))
		if got := u.last(key); !got.Equal(now) {
			t.Errorf("%v after the clock went back the last use was at %v, want %v", later, got, now)
		}
	}
	if got := u.last(client.ObjectKey{Namespace: "db", Name: "other"}); !got.IsZero() {
		t.Errorf("a claim that was never used was used at %v", got)
	}
}

// TestWithout: what is told of a missing class is something that can be done about a
// claim that no schedule copies.
func TestWithout(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}},
	}}
	class := func(name, driver string) snapshotv1.VolumeSnapshotClass {
		return snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver}
	}
	for name, tc := range map[string]struct {
		claim   *corev1.PersistentVolumeClaim
		volume  *corev1.PersistentVolume
		classes []snapshotv1.VolumeSnapshotClass
		says    string
	}{
		"none of the driver": {claimWith(), volume, []snapshotv1.VolumeSnapshotClass{class("x", "other")}, "no VolumeSnapshotClass of driver ebs.csi.aws.com: make one"},
		"none marked":        {claimWith(), volume, []snapshotv1.VolumeSnapshotClass{class("a", "ebs.csi.aws.com"), class("b", "ebs.csi.aws.com")}, "mark one VolumeSnapshotClass"},
		"another driver's":   {claimWith(v1alpha1.AnnotationSnapshotClass, "x"), volume, []snapshotv1.VolumeSnapshotClass{class("x", "other"), class("a", "ebs.csi.aws.com")}, `"x" is of another driver`},
		"not there":          {claimWith(v1alpha1.AnnotationSnapshotClass, "y"), volume, []snapshotv1.VolumeSnapshotClass{class("a", "ebs.csi.aws.com")}, `"y", and there is no VolumeSnapshotClass of that name`},
		"no CSI":             {claimWith(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}, nil, "only CSI volumes can be copied"},
		"no volume":          {claimWith(), nil, nil, `PersistentVolume "pv" is not there`},
	} {
		tc.claim.Status.Phase = corev1.ClaimBound
		_, cannot := schedule.Judge(&v1alpha1.SnapshotScheduleSpec{}, tc.claim, tc.volume, schedule.Classes{Single: tc.classes})
		if cannot == nil {
			t.Fatalf("%s: there is a class", name)
		}
		got := without(tc.claim, tc.volume, cannot)
		if !strings.Contains(got, tc.says) || strings.Contains(got, "snapshotClassName") || strings.Contains(got, "target") {
			t.Errorf("%s: %q, want %q, and no field of a schedule", name, got, tc.says)
		}
	}
}

// TestSnapshotName: the same while nothing changes, another after each doubt.
func TestSnapshotName(t *testing.T) {
	names := map[string]string{}
	for what, s := range map[string]Sight{
		"left":             left(func(*Sight) {}),
		"left later":       left(func(s *Sight) { s.Claim.Annotations[v1alpha1.AnnotationOrphanedSince] = ago(time.Minute) }),
		"watched later":    left(func(s *Sight) { s.WatchedSince = now.Add(-time.Minute * 2) }),
		"of another claim": left(func(s *Sight) { s.Claim.UID = "other" }),
	} {
		name := SnapshotName(s)
		if other, twice := names[name]; twice || len(name) > 63 || SnapshotName(s) != name {
			t.Errorf("%s: %q, as for %s", what, name, other)
		}
		names[name] = what
	}
	told := left(func(s *Sight) {
		s.WatchedSince, s.Claim.Status.Conditions = now, unused(corev1.ConditionTrue, 2*time.Hour)
	})
	if got := names[SnapshotName(told)]; got != "left" {
		t.Errorf("where Kubernetes tells of use, a new process takes another snapshot: %q", got)
	}
}

// TestSlim: informers keep what is read, and no more.
func TestSlim(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", CreationTimestamp: metav1.NewTime(now), Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "pg"}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-pg-0"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		},
	}}
	o, err := SlimPod(pod)
	slim := o.(*corev1.Pod)
	if err != nil || slim.Name != "pg-0" || !slim.CreationTimestamp.Time.Equal(now) || len(slim.Spec.Containers) != 0 || slim.Labels != nil || len(slim.Spec.Volumes) != 2 ||
		claimOf(slim.Name, slim.Spec.Volumes[0]) != "data-pg-0" || claimOf(slim.Name, slim.Spec.Volumes[1]) != "pg-0-scratch" {
		t.Errorf("a Pod is kept as %+v, %v", slim, err)
	}
}
