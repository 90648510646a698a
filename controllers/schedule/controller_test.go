//go:build envtest

package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// dying lets some creations of copies through, then nothing more: the process is
// dead to the API server.
func dying(after int) func(*http.Request, string) error {
	var mu sync.Mutex
	return func(req *http.Request, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if after == 0 {
			return errors.New("killed")
		}
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/volumesnapshots") {
			after--
		}
		return nil
	}
}

// testKilled: leaders that die after 3, and after 4 more, of the 10 copies of a
// run, and one after all of them but before it writes the status. Each that
// comes goes on, and no claim is copied twice (C04).
func testKilled(t *testing.T) {
	ns := namespace(t, 10)
	s := each(t, ns, "minutely")
	slot := slotOf(s)
	want := map[string]string{}
	var claims corev1.PersistentVolumeClaimList
	if err := server.client.List(t.Context(), &claims, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		want[c.Name] = copies.Name(c.Name, c.UID, s.UID, copies.SlotOf(slot))
	}
	total := 0
	for _, lives := range []int{3, 4, 3} {
		m := start(t, options{before: dying(lives)})
		_, _ = m.look(s, slot)
		m.stop()
		total += lives
		if got := len(taken(t, s)); got != total {
			t.Fatalf("%d copies after the leader died, want %d", got, total)
		}
		if st := status(t, s); st.LastScheduleTime != nil {
			t.Fatalf("a dead leader wrote lastScheduleTime %v", st.LastScheduleTime)
		}
	}
	m := start(t, options{})
	var st v1alpha1.SnapshotScheduleStatus
	for range 3 {
		st = m.must(s, slot.Add(2*time.Second))
	}
	names := map[string]string{}
	for claim, o := range taken(t, s) {
		names[claim] = o.Name
	}
	if !maps.Equal(names, want) {
		t.Errorf("copies are %v, want %v", names, want)
	}
	if st.LastScheduleTime == nil || !st.LastScheduleTime.Time.Equal(slot) || st.PendingCount != 10 {
		t.Errorf("status is %+v, want the run of %v over and 10 pending", st, slot)
	}
	if n := m.wire.written("PATCH", `"lastScheduleTime"`); len(n) != 1 {
		t.Errorf("lastScheduleTime was written %d times, want once: %q", len(n), n)
	}
}

// testTwoLeaders: a leader that does not know yet that it leads no more plans
// the same run at once.
func testTwoLeaders(t *testing.T) {
	ns := namespace(t, 10)
	s := each(t, ns, "minutely")
	var group sync.WaitGroup
	leaders := []*manager{start(t, options{}), start(t, options{})}
	for _, m := range leaders {
		m.level(ns)
		m.clk.SetTime(slotOf(s))
	}
	for _, m := range leaders {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := m.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	st := leaders[1].must(s, slotOf(s).Add(time.Second))
	if got := len(taken(t, s)); got != 10 || len(st.Claims) != 0 || st.LastScheduleTime == nil {
		t.Errorf("%d copies, want 10, and nobody to complain: %+v", got, st)
	}
}

// testCaps: two schedules that are due at once, planned before any informer
// shows what the other one asked for, keep the caps of cluster and class.
func testCaps(t *testing.T) {
	ns := namespace(t, 4)
	a, b := each(t, ns, "a"), each(t, ns, "b")
	slot := slotOf(b)
	m := start(t, options{limits: Limits{Cluster: 1000, Class: 5}})
	uncut := map[string]int{}
	m.level(ns)
	m.clk.SetTime(slot)
	m.r.limits.Class += uncutOf(t)
	var group sync.WaitGroup
	for _, s := range []*v1alpha1.SnapshotSchedule{a, b} {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 3 {
				if _, err := m.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	for _, s := range []*v1alpha1.SnapshotSchedule{a, b} {
		for _, o := range taken(t, s) {
			uncut[s.Name]++
			progress(t, o, cutAt(slot, false))
		}
	}
	if uncut["a"]+uncut["b"] != 5 {
		t.Errorf("%v copies were asked for at once, the class takes 5", uncut)
	}
	m.level(ns)
	for _, s := range []*v1alpha1.SnapshotSchedule{a, b} {
		m.must(s, slot.Add(20*time.Second))
		if got := len(taken(t, s)); got != 4 {
			t.Errorf("%s has %d copies once the others are cut, want 4", s.Name, got)
		}
	}
}

// uncutOf counts what other tests have left in the queue of the class.
func uncutOf(t *testing.T) int {
	t.Helper()
	var list snapshotv1.VolumeSnapshotList
	if err := server.client.List(t.Context(), &list, client.HasLabels{v1alpha1.LabelSchedule}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, o := range list.Items {
		if o.Status == nil || o.Status.CreationTime == nil {
			n++
		}
	}
	return n
}

// testQuota: what a quota refuses is named claim by claim, stops no other, and is
// tried again after a while, not at once.
func testQuota(t *testing.T) {
	const counted = corev1.ResourceName("count/volumesnapshots.snapshot.storage.k8s.io")
	ns := namespace(t, 5)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "few"}}
	allow := func(n string) {
		quota.Spec.Hard = corev1.ResourceList{counted: resource.MustParse(n)}
		if err := server.client.Update(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
		quota.Status.Hard = quota.Spec.Hard // the controller manager's work
		if quota.Status.Used == nil {
			quota.Status.Used = corev1.ResourceList{counted: resource.MustParse("0")}
		}
		if err := server.client.Status().Update(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
	}
	create(t, quota)
	allow("2")
	s := byHand(t, ns, "once")
	slot := s.CreationTimestamp.Add(time.Second)
	m := start(t, options{})
	eventually(t, "the quota holds", 30*time.Second, func() error {
		probe := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new(string)}}}
		*probe.Spec.Source.PersistentVolumeClaimName = "data-0"
		return server.client.Create(t.Context(), probe, client.DryRunAll)
	})
	m.must(s, slot)
	st := m.must(s, slot.Add(time.Second))
	asked := len(m.wire.written("POST", "/volumesnapshots"))
	if got := len(taken(t, s)); got != 2 || asked != 5 {
		t.Errorf("%d copies after %d requests, want 2 after 5", got, asked)
	}
	if st.LastRunToken != "" || len(st.Claims) != 3 {
		t.Fatalf("status is %+v, want three claims that are refused, and the run not over", st)
	}
	for _, c := range st.Claims {
		if c.Reason != v1alpha1.ClaimRefused || !strings.Contains(c.Message, "quota") {
			t.Errorf("claim %s is told as %s: %s", c.Name, c.Reason, c.Message)
		}
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionDegraded); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("Degraded is %+v, want True", c)
	}
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
		t.Fatal(err)
	}
	allow("5")
	m.must(s, slot.Add(firstRetry+time.Second))
	eventually(t, "the larger quota is seen", 30*time.Second, func() error {
		m.must(s, m.clk.Now().Add(lastRetry))
		if n := len(taken(t, s)); n != 5 {
			return fmt.Errorf("%d copies", n)
		}
		return nil
	})
	if st = m.must(s, m.clk.Now()); len(st.Claims) != 0 || st.LastRunToken != "once" {
		t.Errorf("status is %+v, want nothing refused any more", st)
	}
}

// testStranger: a VolumeSnapshot of the copy's name that somebody else made is
// named and left alone, and stops no other claim.
func testStranger(t *testing.T) {
	ns := namespace(t, 3)
	s := each(t, ns, "minutely")
	slot, claim := slotOf(s), &corev1.PersistentVolumeClaim{}
	if err := server.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "data-1"}, claim); err != nil {
		t.Fatal(err)
	}
	name := copies.Name(claim.Name, claim.UID, s.UID, copies.SlotOf(slot))
	theirs := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.LabelSchedule: "another"}},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name}},
	}
	create(t, theirs)
	m := start(t, options{})
	st := m.must(s, slot)
	if got := slices.Sorted(maps.Keys(taken(t, s))); !slices.Equal(got, []string{"data-0", "data-2"}) {
		t.Errorf("copies of %v, want data-0 and data-2", got)
	}
	if len(st.Claims) != 1 || st.Claims[0].Name != "data-1" || !strings.Contains(st.Claims[0].Message, name+" is there already and is not this schedule's") {
		t.Errorf("claims are %+v, want data-1 with the stranger's name", st.Claims)
	}
	var left snapshotv1.VolumeSnapshot
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), &left); err != nil || left.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the stranger's snapshot was touched: %v", err)
	}
	if st = m.must(s, slot.Add(2*time.Hour)); st.LastScheduleTime == nil {
		t.Error("the run does not end at its deadline")
	}
}

// testInvalid: specs that the schema takes and that cannot be acted on (C02).
func testInvalid(t *testing.T) {
	ns := namespace(t, 1)
	m := start(t, options{})
	for name, spec := range map[string]v1alpha1.SnapshotScheduleSpec{
		"zone-inside": {Schedule: "TZ=UTC"},
		"cron-zone":   {Schedule: "CRON_TZ=Asia/Tokyo 0 3 * * *"},
		"never":       {Schedule: "0 0 31 4 *"},
		"minute":      {Schedule: "60 * * * *"},
		"seconds":     {Schedule: "30 0 * * * *"},
		"zone":        {Schedule: "0 * * * *", TimeZone: "Asia/Atlantis"},
		"selector":    {Schedule: "0 * * * *", Target: v1alpha1.SnapshotTarget{ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}},
		"held":        {Schedule: "0 * * * *", Template: v1alpha1.SnapshotTemplate{Annotations: map[string]string{v1alpha1.AnnotationHold: "all"}}},
	} {
		s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
		create(t, s)
		kept := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "kept-", Labels: map[string]string{v1alpha1.LabelSchedule: name, v1alpha1.LabelClaimUID: "x", v1alpha1.LabelSlot: "y"}},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &name}},
		}
		create(t, kept)
		for i := range 3 {
			result, err := m.look(s, s.CreationTimestamp.Add(time.Duration(i)*time.Hour))
			if err != nil || result.RequeueAfter > 0 && result.RequeueAfter < 5*time.Minute {
				t.Errorf("%s: reconciled again after %v, %v", name, result.RequeueAfter, err)
			}
		}
		st := status(t, s)
		if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionValid); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonInvalidSpec {
			t.Errorf("%s: Valid is %+v", name, c)
		}
		if n := len(m.wire.written("PATCH", "/"+name+"/status")); n != 1 {
			t.Errorf("%s: the status was written %d times, want once", name, n)
		}
		m.level(ns)
		if woken := m.r.ofSnapshot(t.Context(), kept); len(woken) != 0 {
			t.Errorf("%s: its copies wake it, though its spec is as before: %v", name, woken)
		}
	}
	if n := m.wire.written("/volumesnapshots"); len(n) != 0 {
		t.Errorf("snapshots were written: %q", n)
	}
}

// testGoing: nobody is alerted by the age of the copies of a schedule that is being
// deleted, however long its copies take to go.
func testGoing(t *testing.T) {
	s := &v1alpha1.SnapshotSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t, 1), Name: "minutely", Finalizers: []string{v1alpha1.FinalizerSnapshots}},
		Spec:       v1alpha1.SnapshotScheduleSpec{Schedule: "* * * * *"},
	}
	create(t, s)
	t.Cleanup(func() {
		if err := server.client.Patch(context.Background(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Error(err)
		}
	})
	m := start(t, options{})
	m.must(s, slotOf(s))
	told := []string{"holdfast_schedule_expected_interval_seconds", "holdfast_schedule_last_success_timestamp_seconds", "holdfast_snapshots", "holdfast_schedule_claims_failing"}
	for _, name := range told {
		if m.series(name, s.Namespace) == 0 {
			t.Errorf("%s is not told of a schedule that runs", name)
		}
	}
	if err := server.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := m.look(s, slotOf(s).Add(time.Minute)); err != nil || len(taken(t, s)) != 1 {
		t.Errorf("%d copies, want the one from before: %v", len(taken(t, s)), err)
	}
	for _, name := range told {
		if n := m.series(name, s.Namespace); n != 0 {
			t.Errorf("%s is told of a schedule that is being deleted: %d series", name, n)
		}
	}
}

// testLeaving: nothing is created in a namespace that is being deleted.
func testLeaving(t *testing.T) {
	ns := namespace(t, 2)
	s := each(t, ns, "minutely")
	m := start(t, options{})
	m.must(s, s.CreationTimestamp.Time) // starts the informer of namespaces
	if err := server.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is seen to go", 20*time.Second, func() error {
		if leaving, err := m.r.leaving(t.Context(), ns); err != nil || !leaving {
			return fmt.Errorf("leaving: %t, %w", leaving, err)
		}
		return nil
	})
	result, err := m.look(s, slotOf(s))
	if err != nil || result.RequeueAfter != 0 {
		t.Errorf("reconciled again after %v: %v", result.RequeueAfter, err)
	}
	if n := m.wire.written("POST", "/volumesnapshots"); len(n) != 0 {
		t.Errorf("copies were asked for: %q", n)
	}
}

// testDrivers: a claim whose driver has no class is named, and the others are copied.
func testDrivers(t *testing.T) {
	ns := namespace(t, 1)
	boundClaim(t, ns, "other", "hostpath.example.org")
	s := each(t, ns, "minutely")
	st := start(t, options{}).must(s, slotOf(s))
	if got := slices.Sorted(maps.Keys(taken(t, s))); !slices.Equal(got, []string{"data-0"}) {
		t.Errorf("copies of %v, want data-0", got)
	}
	if len(st.Claims) != 1 || st.Claims[0].Reason != v1alpha1.ClaimNoSnapshots || !strings.Contains(st.Claims[0].Message, "hostpath.example.org") {
		t.Errorf("claims are %+v, want that the driver of other cannot snapshot", st.Claims)
	}
}

// testReady: an error that passes is no failure (C09), one past its deadline is
// until the copy is ready after all, and what does not change is not written.
func testReady(t *testing.T) {
	ns := namespace(t, 1)
	s := byHand(t, ns, "once", func(spec *v1alpha1.SnapshotScheduleSpec) { spec.ReadyDeadlineSeconds = 120 })
	slot, m := s.CreationTimestamp.Add(time.Second), start(t, options{})
	m.must(s, slot)
	o := taken(t, s)["data-0"]
	text, no := "snapshot controller failed to update", false
	progress(t, o, snapshotv1.VolumeSnapshotStatus{ReadyToUse: &no, Error: &snapshotv1.VolumeSnapshotError{Message: &text}})
	if st := m.must(s, slot.Add(2*time.Second)); st.PendingCount != 1 || st.FailedCount != 0 || len(st.Claims) != 0 {
		t.Errorf("after a passing error the status is %+v, want one pending", st)
	}
	result, err := m.look(s, slot.Add(3*time.Second))
	if err != nil || result.RequeueAfter > 2*time.Minute {
		t.Errorf("looks again after %v, the deadline is in 2 minutes: %v", result.RequeueAfter, err)
	}
	deadline := o.CreationTimestamp.Add(2 * time.Minute)
	st := m.must(s, deadline)
	if st.FailedCount != 1 || len(st.Claims) == 0 || st.Claims[0].Reason != v1alpha1.ClaimFailed || !strings.Contains(st.Claims[0].Message, text) {
		t.Errorf("past its deadline the status is %+v, want one failed with the last error", st)
	}
	progress(t, taken(t, s)["data-0"], cutAt(slot, true))
	m.must(s, deadline.Add(time.Second))
	st = m.must(s, deadline.Add(2*time.Second))
	if st.ReadyCount != 1 || st.LastSuccessfulTime == nil || !st.LastSuccessfulTime.Time.Equal(slot) {
		t.Errorf("ready after all, the status is %+v", st)
	}
}

// testThrift: what is written of a run besides its copies. That it is over is
// written as soon as its copies are asked for, their becoming ready not one by one.
func testThrift(t *testing.T) {
	const claims = 6
	s := byHand(t, namespace(t, claims), "once")
	m, began := start(t, options{}), s.CreationTimestamp.Add(time.Second)
	writes := func(why string, want int) {
		t.Helper()
		if n := m.wire.written("PATCH", "/status"); len(n) != want {
			t.Fatalf("%s: the status was written %d times, want %d: %q", why, len(n), want, n)
		}
	}
	if st := m.must(s, began); st.LastRunToken != "once" || st.PendingCount != claims {
		t.Errorf("all copies are asked for, and the status is %+v", st)
	}
	writes("the run is over", 1)
	one := 0
	ready := func() {
		progress(t, taken(t, s)[fmt.Sprint("data-", one)], cutAt(began, true))
		one++
	}
	for range 3 {
		ready()
		m.must(s, began.Add(time.Duration(one)*time.Second))
	}
	writes("three are ready, a second apart", 1)
	if got := testutil.ToFloat64(m.r.metrics.copies.WithLabelValues(s.Namespace, s.Name, "ready")); got != 3 {
		t.Errorf("the metrics count %v ready ones, want 3", got)
	}
	if result, err := m.look(s, began.Add(5*time.Second)); err != nil || result.RequeueAfter > progressWithin {
		t.Errorf("looks again after %v, %v: want when it is to be written", result.RequeueAfter, err)
	}
	if st := m.must(s, began.Add(time.Second+progressWithin)); st.ReadyCount != 3 || st.PendingCount != 3 {
		t.Errorf("a minute later the status is %+v, want 3 ready and 3 pending", st)
	}
	writes("a minute later", 2)
	ready()
	m.must(s, began.Add(3*time.Second+progressWithin))
	writes("a fourth", 2)
	ready()
	ready()
	if st := m.must(s, began.Add(4*time.Second+progressWithin)); st.ReadyCount != claims || st.PendingCount != 0 {
		t.Errorf("all are ready, and the status is %+v", st)
	}
	writes("all are ready", 3)
	if n := m.wire.written(s.Namespace); len(n) != claims+3 {
		t.Errorf("%d writes, want %d copies and 3 of the status: %q", len(n), claims, n)
	}
}

// testRunning: a manager by itself: a run by hand is made, told and measured;
// then nothing more is written; and the series go with the schedule.
func testRunning(t *testing.T) {
	ns := namespace(t, 3)
	m := start(t, options{running: true})
	s := byHand(t, ns, "before the upgrade")
	eventually(t, "three copies", 20*time.Second, func() error {
		if n := len(taken(t, s)); n != 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	for _, o := range taken(t, s) {
		progress(t, o, cutAt(time.Now(), true))
	}
	eventually(t, "three are ready", 20*time.Second, func() error {
		if st := status(t, s); st.ReadyCount != 3 || st.LastRunToken != "before the upgrade" {
			return fmt.Errorf("status is %+v", st)
		}
		return nil
	})
	eventually(t, "the run is told", 20*time.Second, func() error {
		var list eventsv1.EventList
		if err := server.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		var notes []string
		for _, e := range list.Items {
			notes = append(notes, e.Reason+": "+e.Note)
		}
		if len(notes) != 1 || !strings.HasPrefix(notes[0], eventTaken) || !strings.Contains(notes[0], "3 of 3 claims") {
			return fmt.Errorf("events are %q", notes)
		}
		return nil
	})
	for name, want := range map[string]int{
		"holdfast_schedule_expected_interval_seconds": 1, "holdfast_schedule_active_since_timestamp_seconds": 1, "holdfast_schedule_last_success_timestamp_seconds": 1,
		"holdfast_snapshots": 3, "holdfast_schedule_missed_slots_total": 1, "holdfast_snapshot_ready_seconds": 1,
	} {
		if n := m.series(name, ns); n != want {
			t.Errorf("%d series of %s, want %d", n, name, want)
		}
	}
	if n := m.series("holdfast_claims_unprotected", ns); n != 0 {
		t.Error("claims that a schedule covers are counted as unprotected")
	}
	quiet(t, m, s)
	if err := server.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the series go", 20*time.Second, func() error {
		for _, name := range []string{"holdfast_snapshots", "holdfast_snapshot_ready_seconds", "holdfast_schedule_missed_slots_total", "holdfast_schedule_expected_interval_seconds", "holdfast_schedule_active_since_timestamp_seconds"} {
			if n := m.series(name, ns); n != 0 {
				return fmt.Errorf("%d series of %s", n, name)
			}
		}
		if n := m.series("holdfast_claims_unprotected", ns); n != 1 {
			return errors.New("the claims are not counted as unprotected")
		}
		return nil
	})
}

// quiet: where nothing changes nothing is written, also by a manager that has
// just started.
func quiet(t *testing.T, m *manager, s *v1alpha1.SnapshotSchedule) {
	t.Helper()
	fresh := start(t, options{})
	before := len(m.wire.written(s.Namespace))
	for i := range 5 {
		fresh.must(s, time.Now().Add(time.Duration(i)*time.Hour))
	}
	if n := fresh.wire.written(s.Namespace); len(n) != 0 {
		t.Errorf("nothing has changed, and a new leader writes %q", n)
	}
	if n := m.wire.written(s.Namespace); len(n) != before {
		t.Errorf("nothing has changed, and the leader writes %q", n[before:])
	}
}
