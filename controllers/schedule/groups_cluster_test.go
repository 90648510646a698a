//go:build envtest

package schedule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv8 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// wholeOf are the groups of a schedule, as the API server has them.
func wholeOf(t *testing.T, s *v1alpha1.SnapshotSchedule) []groupv1.VolumeGroupSnapshot {
	t.Helper()
	var list groupv1.VolumeGroupSnapshotList
	if err := server.client.List(t.Context(), &list, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// picks are the claims that a group's selector picks, as the snapshot-controller
// asks for them.
func picks(t *testing.T, g *groupv1.VolumeGroupSnapshot) string {
	t.Helper()
	var claims corev1.PersistentVolumeClaimList
	if err := server.client.List(t.Context(), &claims, client.InNamespace(g.Namespace), client.MatchingLabels(g.Spec.Source.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range claims.Items {
		names = append(names, c.Name)
	}
	return strings.Join(names, "+")
}

// groupProgress writes the status of a group as the snapshot-controller does.
func groupProgress(t *testing.T, g *groupv1.VolumeGroupSnapshot, status groupv1.VolumeGroupSnapshotStatus) {
	t.Helper()
	g.Status = &status
	if err := server.client.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// cutGroup makes the members of a group, as the snapshot-controller does once the
// driver has cut it.
func cutGroup(t *testing.T, g *groupv1.VolumeGroupSnapshot, at time.Time, claims ...string) {
	t.Helper()
	for _, claim := range claims {
		m := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "snapshot-" + string(g.UID) + claim, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: groupv1.SchemeGroupVersion.String(), Kind: "VolumeGroupSnapshot", Name: g.Name, UID: g.UID},
			}},
			Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
		}
		create(t, m)
		progress(t, *m, cutAt(at, true))
	}
	status := *g.Status.DeepCopy()
	status.CreationTime, status.ReadyToUse = &metav1.Time{Time: at}, ptr.To(true)
	groupProgress(t, g, status)
}

// levelGroups waits until the informer shows the groups of a namespace as they are.
func (m *manager) levelGroups(ns string) {
	m.t.Helper()
	of := func(from client.Reader) (string, error) {
		var list groupv1.VolumeGroupSnapshotList
		err := from.List(m.t.Context(), &list, client.InNamespace(ns))
		var all []string
		for _, g := range list.Items {
			all = append(all, g.Name+g.ResourceVersion)
		}
		slices.Sort(all)
		return fmt.Sprint(all), err
	}
	eventually(m.t, "the informer of groups is level", 20*time.Second, func() error {
		now, err := of(server.client)
		cached, cachedErr := of(m.ctrl.GetCache())
		if now != cached {
			return errors.New(now + " is not " + cached)
		}
		return errors.Join(err, cachedErr)
	})
}

func grouping(spec *v1alpha1.SnapshotScheduleSpec) { spec.Consistency = v1alpha1.GroupCopies }

// testGroups: a Pod's claims are one group, however often the leader dies before it
// is there; members get their marks, claims lose the label, and then nothing more
// is written.
func testGroups(t *testing.T) {
	create(t, &groupv1.VolumeGroupSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "example-groups", Annotations: map[string]string{defaultGroupClassAnnotation: "true"}},
		Driver:     driver, DeletionPolicy: snapshotv8.VolumeSnapshotContentDelete,
	})
	ns := namespace(t, 5)
	boundClaim(t, ns, "other", "no-groups.example.com")
	runningPod(t, ns, "pg-0", "data-0", "data-1", "other")
	runningPod(t, ns, "pg-1", "data-2", "data-3")
	s := byHand(t, ns, "once", grouping, func(spec *v1alpha1.SnapshotScheduleSpec) { spec.Template.Labels = map[string]string{"team": "db"} })
	at := s.CreationTimestamp.Add(time.Second)
	for lives := range 6 { // four labels and two groups
		var mu sync.Mutex
		left := lives
		m := start(t, options{before: func(*http.Request, string) error {
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 {
				return errors.New("killed")
			}
			return nil
		}})
		m.levelGroups(ns)
		_, _ = m.look(s, at)
		m.stop()
	}
	m := start(t, options{})
	look := func(after time.Duration) v1alpha1.SnapshotScheduleStatus {
		t.Helper()
		m.levelGroups(ns)
		return m.must(s, at.Add(after))
	}
	st := look(0)
	groups := wholeOf(t, s)
	if len(groups) != 2 || len(taken(t, s)) != 0 {
		t.Fatalf("%d groups and %d copies by themselves, want 2 and none", len(groups), len(taken(t, s)))
	}
	for i := range groups {
		if got := picks(t, &groups[i]); got != "data-0+data-1" && got != "data-2+data-3" {
			t.Errorf("group %s picks %s", groups[i].Name, got)
		}
	}
	why := map[string]v1alpha1.ClaimReason{}
	for _, c := range st.Claims {
		why[c.Name] = c.Reason
	}
	if want := map[string]v1alpha1.ClaimReason{"data-4": v1alpha1.ClaimNotMounted, "other": v1alpha1.ClaimNoGroups}; fmt.Sprint(why) != fmt.Sprint(want) {
		t.Errorf("the status tells of %v, want %v", why, want)
	}
	if ready := meta.FindStatusCondition(st.Conditions, "Ready"); ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "no VolumeGroupSnapshotClass of driver no-groups.example.com") {
		t.Errorf("Ready is %+v", ready)
	}
	st = look(time.Second)
	if st.PendingCount != 4 || st.LastGroupCut != nil {
		t.Errorf("the status counts %d in the making, want 4: %+v", st.PendingCount, st)
	}
	if picks(t, &groups[0]) == "" || picks(t, &groups[1]) == "" {
		t.Error("the labels went before the claims were picked")
	}
	for i := range groups {
		groupProgress(t, &groups[i], groupv1.VolumeGroupSnapshotStatus{BoundVolumeGroupSnapshotContentName: ptr.To("content-" + groups[i].Name)})
	}
	look(2 * time.Second)
	var claims corev1.PersistentVolumeClaimList
	if err := server.client.List(t.Context(), &claims, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if len(c.Labels) > 0 {
			t.Errorf("claim %s still has %v", c.Name, c.Labels)
		}
	}
	for i := range groups {
		of := copies.ClaimsOf(&groups[i])
		cutGroup(t, &groups[i], at.Add(3*time.Second), of[0].Name, of[1].Name)
	}
	look(4 * time.Second)
	st = look(5 * time.Second)
	marked := taken(t, s)
	if len(marked) != 4 || st.ReadyCount != 4 || st.PendingCount != 0 {
		t.Errorf("%d members are marked, %d are counted as ready and %d as in the making; want 4, 4 and 0", len(marked), st.ReadyCount, st.PendingCount)
	}
	for claim, o := range marked {
		if o.Labels["team"] != "db" || o.Annotations[v1alpha1.AnnotationClaim] != claim || o.Annotations[v1alpha1.AnnotationGroup] != o.OwnerReferences[0].Name {
			t.Errorf("the copy of %s carries %v and %v", claim, o.Labels, o.Annotations)
		}
	}
	if cut := st.LastGroupCut; cut == nil || cut.GroupCount != 2 || cut.SeriesCount != 0 || cut.SpreadSeconds != 0 {
		t.Errorf("the run was cut as %+v, want two groups at one instant", cut)
	}
	before := len(m.wire.written())
	if look(6 * time.Second); len(m.wire.written()) != before {
		t.Errorf("written in steady state: %q", m.wire.written()[before:])
	}
	for _, refused := range []func(*v1alpha1.SnapshotScheduleSpec){
		func(spec *v1alpha1.SnapshotScheduleSpec) {
			spec.Consistency, spec.SnapshotClassName = v1alpha1.GroupCopies, class
		},
		func(spec *v1alpha1.SnapshotScheduleSpec) { spec.GroupSnapshotClassName = "example-groups" },
		func(spec *v1alpha1.SnapshotScheduleSpec) { spec.Consistency = "Together" },
	} {
		bad := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bad"}, Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "@daily"}}
		refused(&bad.Spec)
		if err := server.client.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
			t.Errorf("%+v is not refused: %v", bad.Spec, err)
		}
	}
}

// testLeftLabels: the label of a group that was never made goes, and that of
// another schedule's group, which may be about to be made, stays.
func testLeftLabels(t *testing.T) {
	ns := namespace(t, 1)
	s := byHand(t, ns, "", grouping)
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = ns, "data-0"
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	others := copies.GroupLabel("another", "theirs")
	claim.Labels = map[string]string{copies.GroupLabel(s.UID, "never-made"): "never-made", others: "theirs", "app": "pg"}
	if err := server.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	start(t, options{}).must(s, s.CreationTimestamp.Add(time.Second))
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Fatal(err)
	}
	if len(claim.Labels) != 2 || claim.Labels[others] != "theirs" || claim.Labels["app"] != "pg" {
		t.Errorf("the claim has %v", claim.Labels)
	}
}

// testRefusedMarks: a member that may not be marked, by whatever webhook, keeps
// neither the others from their marks nor the status from being told.
func testRefusedMarks(t *testing.T) {
	ns := namespace(t, 2)
	runningPod(t, ns, "pg-0", "data-0", "data-1")
	s := byHand(t, ns, "once", grouping)
	at := s.CreationTimestamp.Add(time.Second)
	m := start(t, options{before: func(req *http.Request, _ string) error {
		if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/volumesnapshots/") && strings.HasSuffix(req.URL.Path, "data-0") {
			return errors.New("refused")
		}
		return nil
	}})
	m.levelGroups(ns)
	m.must(s, at)
	groups := wholeOf(t, s)
	if len(groups) != 1 {
		t.Fatalf("%d groups, want 1", len(groups))
	}
	groupProgress(t, &groups[0], groupv1.VolumeGroupSnapshotStatus{BoundVolumeGroupSnapshotContentName: ptr.To("content-" + groups[0].Name)})
	cutGroup(t, &groups[0], at, "data-0", "data-1")
	for _, after := range []time.Duration{2 * time.Second, 3 * time.Second, 3*time.Second + progressWithin} {
		m.levelGroups(ns)
		if _, err := m.look(s, at.Add(after)); err == nil || !strings.Contains(err.Error(), "data-0") {
			t.Errorf("what could not be marked is not tried again: %v", err)
		}
	}
	if st := status(t, s); st.ReadyCount != 1 || st.PendingCount != 1 {
		t.Errorf("the status counts %d ready and %d in the making, want one each: the member without marks counts as its group does", st.ReadyCount, st.PendingCount)
	}
	if _, marked := taken(t, s)["data-1"]; !marked {
		t.Error("the other member is not marked")
	}
}

// testHookedGroup: hooks wait for the cut of a group, and what they say of it comes
// on its members.
func testHookedGroup(t *testing.T) {
	ns := namespace(t, 2)
	runningPod(t, ns, "pg-0", "data-0", "data-1")
	s := byHand(t, ns, "once", hooked, grouping)
	var mu sync.Mutex
	var did []string
	m := start(t, options{run: func(c hooks.Command) error {
		mu.Lock()
		defer mu.Unlock()
		groups := wholeOf(t, s)
		did = append(did, fmt.Sprintf("%s with %d groups, cut %t", c.Hook, len(groups), len(groups) == 1 && !copies.Cut(&groups[0]).IsZero()))
		return nil
	}})
	eventually(t, "the runner has looked for records", 20*time.Second, func() error {
		if r := m.r.hooks.Freeze(t.Context(), hooks.Owner{Namespace: "default"}, hooks.Freeze{Copies: []string{ns}, MaxFreeze: time.Second, Before: []hooks.Before{{Cannot: "a probe"}}}, nil); !strings.Contains(r.Failed, "a probe") {
			return errors.New(r.Failed)
		}
		return nil
	})
	at := s.CreationTimestamp.Add(time.Second)
	cutter := make(chan struct{})
	go func() { // the snapshot-controller and the driver
		defer close(cutter)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
			if groups := wholeOf(t, s); len(groups) == 1 {
				groups[0].Status = &groupv1.VolumeGroupSnapshotStatus{BoundVolumeGroupSnapshotContentName: ptr.To("content")}
				cutGroup(t, &groups[0], at, "data-0", "data-1")
				return
			}
		}
	}()
	m.must(s, at)
	<-cutter
	m.levelGroups(ns)
	m.must(s, at.Add(time.Second))
	if want := []string{"before[0] with 0 groups, cut false", "after[0] with 1 groups, cut true"}; fmt.Sprint(did) != fmt.Sprint(want) {
		t.Errorf("hooks saw %q, want %q", did, want)
	}
	marked := taken(t, s)
	for claim, o := range marked {
		if o.Annotations[v1alpha1.AnnotationQuiesced] != v1alpha1.Quiesced {
			t.Errorf("the copy of %s is marked %q, want %s", claim, o.Annotations[v1alpha1.AnnotationQuiesced], v1alpha1.Quiesced)
		}
	}
	if len(marked) != 2 {
		t.Errorf("%d members are marked, want 2", len(marked))
	}
}
