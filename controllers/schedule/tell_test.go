package schedule

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// TestTroubleIsToldOnce: once for each copy that failed, whatever is said of it
// later, and once for each stretch of refusals.
func TestTroubleIsToldOnce(t *testing.T) {
	failed := func(name, says string) v1alpha1.ClaimSnapshots {
		return v1alpha1.ClaimSnapshots{UID: "a", Reason: v1alpha1.ClaimFailed, Message: "VolumeSnapshot " + name + " was not ready by noon: " + says}
	}
	group := func(name string) v1alpha1.ClaimSnapshots {
		return v1alpha1.ClaimSnapshots{UID: "a", Reason: v1alpha1.ClaimFailed, Message: "VolumeGroupSnapshot " + name + " was not ready by noon: x"}
	}
	refused := func(says string) v1alpha1.ClaimSnapshots {
		return v1alpha1.ClaimSnapshots{UID: "a", Reason: v1alpha1.ClaimRefused, Message: says}
	}
	for name, tc := range map[string]struct {
		old  []v1alpha1.ClaimSnapshots
		now  v1alpha1.ClaimSnapshots
		want bool
	}{
		"failed":                {nil, failed("s1", "x"), true},
		"failed, other error":   {[]v1alpha1.ClaimSnapshots{failed("s1", "x")}, failed("s1", "y"), false},
		"the next failed":       {[]v1alpha1.ClaimSnapshots{failed("s1", "x")}, failed("s12", "x"), true},
		"the next group failed": {[]v1alpha1.ClaimSnapshots{group("g1")}, group("g2"), true},
		"the same group":        {[]v1alpha1.ClaimSnapshots{group("g1")}, group("g1"), false},
		"refused":               {[]v1alpha1.ClaimSnapshots{failed("s1", "x")}, refused("quota"), true},
		"refused, other reason": {[]v1alpha1.ClaimSnapshots{refused("quota, used 3")}, refused("quota, used 4"), false},
		"of another claim":      {[]v1alpha1.ClaimSnapshots{{UID: "b", Reason: v1alpha1.ClaimRefused}}, refused("quota"), true},
		"waits":                 {nil, v1alpha1.ClaimSnapshots{UID: "a", Reason: v1alpha1.ClaimWaits}, false},
	} {
		if _, is := news(v1alpha1.SnapshotScheduleStatus{Claims: tc.old}, tc.now); is != tc.want {
			t.Errorf("%s: told %t, want %t", name, is, tc.want)
		}
	}
}

func TestUnprotected(t *testing.T) {
	claim := func(ns, app string, change ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Labels: map[string]string{"app": app}}}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	of := func(ns, app string, change ...func(*v1alpha1.SnapshotSchedule)) v1alpha1.SnapshotSchedule {
		s := v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns}, Spec: hourly()}
		s.Spec.Target.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		for _, f := range change {
			f(&s)
		}
		return s
	}
	now := metav1.Now()
	got := Unprotected([]corev1.PersistentVolumeClaim{
		claim("a", "pg"), claim("a", "kafka"), claim("b", "pg"), claim("c", "pg"), claim("d", "pg"), claim("kube-system", "etcd"),
		claim("a", "cache", func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationNoSnapshots: ""}
		}),
		claim("a", "gone", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }),
	}, []v1alpha1.SnapshotSchedule{
		of("a", "pg"),
		of("b", "pg", func(s *v1alpha1.SnapshotSchedule) { s.Spec.Suspend = true }),
		of("c", "pg", func(s *v1alpha1.SnapshotSchedule) { s.Spec.Schedule = "never" }),
		of("d", "pg", func(s *v1alpha1.SnapshotSchedule) { s.DeletionTimestamp = &now }),
	})
	if want := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}; !maps.Equal(got, want) {
		t.Errorf("unprotected are %v, want %v", got, want)
	}
}

// TestLedger: a refused copy is left alone ever longer, a booking ends when it is
// shown or nobody has shown it for a minute, and what is old is forgotten.
func TestLedger(t *testing.T) {
	l, key, now := newLedger(), types.NamespacedName{Namespace: "db", Name: "hourly"}, today("11:00:00")
	class, claim := "snap", "data-0"
	copyOf := func(uid string) snapshotv1.VolumeSnapshot {
		return snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "copy-" + uid, Labels: map[string]string{v1alpha1.LabelClaimUID: uid, v1alpha1.LabelSlot: "s"}},
			Spec:       snapshotv1.VolumeSnapshotSpec{VolumeSnapshotClassName: &class, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
		}
	}
	a, b := copyOf("a"), copyOf("b")
	var waits []time.Duration
	for range 8 {
		waits = append(waits, l.refused(key, types.NamespacedName{Namespace: "db", Name: a.Name}, "a", "s", now, errors.New("quota")).Wait)
	}
	if fmt.Sprint(waits) != "[5s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s]" {
		t.Errorf("waits %v", waits)
	}
	looks := func(now time.Time) (seen Observed) {
		_ = l.plan(now, func(l *ledger) error {
			seen.Load.Class, seen.Volumes = map[string]int{}, map[types.UID]VolumeLoad{"a": {}}
			l.addTo(&seen, key, time.Hour)
			return nil
		})
		return seen
	}
	l.book(key, now, []snapshotv1.VolumeSnapshot{a, b})
	if seen := looks(now); seen.Load.Cluster != 2 || seen.Load.Class["snap"] != 2 || seen.Volumes["a"].Pending != 1 || len(seen.Copies) != 2 || len(seen.Refusals) != 1 {
		t.Errorf("booked, but observed %+v", seen)
	}
	l.shown(types.NamespacedName{Namespace: "db", Name: "copy-b"})
	if seen := looks(now); seen.Load.Cluster != 1 || len(seen.Copies) != 1 {
		t.Errorf("shown, but observed %+v", seen)
	}
	if seen := looks(now.Add(bookedFor + time.Second)); seen.Load.Cluster != 0 || len(seen.Refusals) != 1 {
		t.Errorf("never shown, but observed %+v", seen)
	}
	if seen := looks(now.Add(3 * lastRetry)); len(seen.Refusals) != 0 {
		t.Errorf("long refused, but observed %+v", seen)
	}
	l.refused(key, types.NamespacedName{Namespace: "db", Name: a.Name}, "a", "s", now, errors.New("quota"))
	l.made(key, "a")
	if len(l.refusals[key]) != 0 {
		t.Error("made, but refused still")
	}
}
