//go:build envtest

package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestRetention calls the reconcilers by hand against one real API server.
func TestRetention(t *testing.T) {
	cfg := testenv.APIServer(t)
	refuseDeletions(t, cfg)
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"C06 last good copy":      lastGoodCopy,
		"C07 slow ready":          slowReady,
		"C08 in use":              inUse,
		"informers that lag":      informersThatLag,
		"a burst":                 burst,
		"held at the last moment": heldAtTheLastMoment,
		"whose they are":          whoseTheyAre,
		"not healthy":             notHealthy,
		"claim deleted":           claimDeleted,
		"claim made again":        claimMadeAgain,
		"refused":                 refused,
		"killed anywhere":         killedAnywhere,
		"killed, and then kept":   killedThenKept,
		"rescued content":         rescuedContent,
		"FollowClass":             followClass,
		"schedule deleted":        scheduleDeleted,
		"namespace deleted":       namespaceDeleted,
		"uninstalled":             uninstalled,
		"a group goes whole":      groupGoesWhole,
		"a group that failed":     groupThatFailed,
		"a group not marked yet":  groupNotMarked,
		"steady state":            steadyState,
		"in a manager":            inManager,
	} {
		t.Run(name, func(t *testing.T) { test(t, cfg) })
	}
}

// refuseDeletions makes the API server refuse to delete snapshots with a label.
func refuseDeletions(t *testing.T, cfg *rest.Config) {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-deletion"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Delete},
			Rule:       admissionv1.Rule{APIGroups: []string{snapshotv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"volumesnapshots"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "!('test/refuse' in oldObject.metadata.?labels.orValue({}))", Message: "the house forbids it"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-deletion"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "no-deletion", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	probe := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", Labels: map[string]string{"test/refuse": "yes"}}, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("c")}}}
	for _, o := range []client.Object{policy, binding, probe} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for begun := time.Now(); !apierrors.IsInvalid(c.Delete(t.Context(), probe, client.DryRunAll)) && !apierrors.IsForbidden(c.Delete(t.Context(), probe, client.DryRunAll)); {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("the policy does not hold yet: %v", c.Delete(t.Context(), probe, client.DryRunAll))
		}
		<-time.After(100 * time.Millisecond)
	}
}

// settle lets the manager work until it has nothing more to do soon, and windows
// of the budget pass.
func (h *house) settle() {
	h.t.Helper()
	for range 30 {
		before := h.there()
		h.must()
		h.clock.Step(window)
		if h.there() == before {
			return
		}
	}
	h.t.Error("it does not come to rest")
}

func lastGoodCopy(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(3))
	claim := h.claim("data", "", corev1.ClaimBound)
	for i := range 3 {
		h.copyOf(claim, fmt.Sprintf("good-%d", i), time.Duration(20-i)*time.Hour, true)
	}
	for i := range 10 {
		h.copyOf(claim, fmt.Sprintf("never-%d", i), 0, false)
	}
	h.settle()
	h.want("all are being made", "good-0 good-1 good-2 never-0 never-1 never-2 never-3 never-4 never-5 never-6 never-7 never-8 never-9")
	h.clock.Step(24*time.Hour + time.Minute) // readyDeadlineSeconds, by default
	h.degraded("hourly", metav1.ConditionTrue)
	spec := h.get("hourly")
	h.change(spec, func() { spec.Spec.Retention.Failed.DeleteAfterSeconds = 7 * 86400 })
	h.settle()
	left := strings.Fields(h.there()) // which of the failed ones is up to the second that each was made in
	if len(left) != 6 || strings.Join(left[:3], " ") != "good-0 good-1 good-2" {
		t.Fatalf("there are %v, want the good ones, and of the failed ones 3", left)
	}
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: left[5]}}
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	s.Status.ReadyToUse, s.Status.CreationTime = ptr.To(true), &metav1.Time{Time: h.clock.Now()}
	if err := h.c.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.want("one succeeds, and the oldest good one goes", strings.Join(left[1:], " "))
	if told := h.told(); !strings.Contains(told, "CopyExpired") || !strings.Contains(told, "good-0") {
		t.Errorf("nothing was told of good-0:\n%s", told)
	}
}

// slowReady: snapshots are asked for hourly, and each needs 90 minutes; the
// deadline is an hour, so for 30 minutes each counts as failed.
func slowReady(t *testing.T, cfg *rest.Config) {
	spec := last(2)
	spec.ReadyDeadlineSeconds = 3600
	h := move(t, cfg, spec)
	claim := h.claim("data", "", corev1.ClaimBound)
	h.copyOf(claim, "a", 3*time.Hour, true)
	h.copyOf(claim, "b", 2*time.Hour, true)
	slow := h.copyOf(claim, "c", 0, false)
	h.settle()
	h.want("it is being made", "a b c")
	h.clock.Step(80 * time.Minute)
	h.settle()
	h.want("it has failed, which pushes out no good one, and may become ready yet", "a b c")
	slow.Status.ReadyToUse, slow.Status.CreationTime = ptr.To(true), &metav1.Time{Time: h.clock.Now().Add(-80 * time.Minute)}
	if err := h.c.Status().Update(t.Context(), slow); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.want("it is ready after all, and the oldest goes", "b c")
}

func inUse(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	h.copyOf(claim, "old", 3*time.Hour, true)
	h.copyOf(claim, "older", 4*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = map[string]string{v1alpha1.AnnotationHold: "audit of 2027"}
	})
	h.copyOf(claim, "new", time.Hour, true)
	restored := h.claim("restored", "old", corev1.ClaimPending)
	h.settle()
	h.want("one is held, and a claim is being filled from the other", "new old older")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonHeldOrInUse, "claim restored is being filled from it")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonHeldOrInUse, "audit of 2027")
	h.phase(restored, corev1.ClaimBound)
	h.settle()
	h.want("the claim has its volume", "new older")
	older := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "older"}}
	h.change(older, func() { older.Annotations = nil })
	h.settle()
	h.want("it is held no more", "new")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionFalse, v1alpha1.ReasonNoneOverdue, "")
}

// stale reads what was there at some time before.
type stale struct {
	client.Client
	snapshots *snapshotv1.VolumeSnapshotList // nil: as they are
	claims    *corev1.PersistentVolumeClaimList
	schedule  *v1alpha1.SnapshotSchedule
}

func (s stale) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch l := list.(type) {
	case *snapshotv1.VolumeSnapshotList:
		if s.snapshots != nil {
			s.snapshots.DeepCopyInto(l)
			return nil
		}
	case *corev1.PersistentVolumeClaimList:
		if s.claims != nil {
			s.claims.DeepCopyInto(l)
			return nil
		}
	}
	return s.Client.List(ctx, list, opts...)
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if l, is := o.(*v1alpha1.SnapshotSchedule); is && s.schedule != nil {
		s.schedule.DeepCopyInto(l)
		return nil
	}
	return s.Client.Get(ctx, key, o, opts...)
}

// informersThatLag: each of these would have let a copy go, had the informers
// been believed.
func informersThatLag(t *testing.T, cfg *rest.Config) {
	remember := func(h *house) stale {
		s := stale{Client: h.r.Client, snapshots: &snapshotv1.VolumeSnapshotList{}, claims: &corev1.PersistentVolumeClaimList{}, schedule: h.get("hourly")}
		for _, list := range []client.ObjectList{s.snapshots, s.claims} {
			if err := h.c.List(t.Context(), list, client.InNamespace(h.ns)); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	one := func(h *house, name string) *snapshotv1.VolumeSnapshot {
		return &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}}
	}
	for name, since := range map[string]func(*house){
		"a hold": func(h *house) {
			s := one(h, "old")
			h.change(s, func() { s.Annotations = map[string]string{v1alpha1.AnnotationHold: "wait"} })
		},
		"a claim made from it": func(h *house) { h.claim("restored", "old", corev1.ClaimPending) },
		"the newer one has gone": func(h *house) {
			if err := h.c.Delete(t.Context(), one(h, "new")); err != nil {
				t.Fatal(err)
			}
		},
		"the rules keep more": func(h *house) {
			s := h.get("hourly")
			h.change(s, func() { s.Spec.Retention.KeepLast = 2 })
		},
		"the schedule is another": func(h *house) {
			s := h.get("hourly")
			if err := h.c.Delete(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			h.schedule("hourly", last(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := move(t, cfg, last(1))
			claim := h.claim("data", "", corev1.ClaimBound)
			h.copyOf(claim, "old", 2*time.Hour, true)
			h.copyOf(claim, "new", time.Hour, true)
			h.r.Client = remember(h)
			since(h)
			_, _ = h.look("hourly")
			if !slices.Contains(strings.Fields(h.there()), "old") {
				t.Error("the informers had not heard, and it was deleted")
			}
		})
	}
	t.Run("no claim is known yet", func(t *testing.T) {
		spec := last(2)
		spec.OnClaimDelete = v1alpha1.ExpireCopies
		h := move(t, cfg, spec)
		claim := h.claim("data", "", corev1.ClaimBound)
		h.copyOf(claim, "old", 2*time.Hour, true)
		h.copyOf(claim, "new", time.Hour, true)
		h.r.Client = stale{Client: h.r.Client, claims: &corev1.PersistentVolumeClaimList{}}
		_, _ = h.look("hourly")
		h.want("an informer without claims says that they are gone", "new old")
	})
}

func burst(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	h.schedule("other", last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	for i := range 60 {
		h.copyOf(claim, fmt.Sprintf("c-%02d", i), time.Duration(100-i)*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) {
			if i%2 == 1 {
				s.Labels[v1alpha1.LabelSchedule] = "other"
			}
		})
	}
	left := func() int { return len(strings.Fields(h.there())) }
	start := left()
	for second := range 60 {
		for _, name := range []string{"hourly", "other"} {
			result, err := h.look(name)
			if err != nil {
				t.Fatal(err)
			}
			if result.RequeueAfter <= 0 || result.RequeueAfter > window {
				t.Fatalf("second %d: it looks again in %v, want within %v", second, result.RequeueAfter, window)
			}
		}
		if second == 0 && start-left() != perWindow {
			t.Errorf("%d went at once, want %d", start-left(), perWindow)
		}
		h.clock.Step(time.Second)
	}
	if gone := start - left(); gone != perMinute {
		t.Errorf("%d copies went in a minute, want %d", gone, perMinute)
	}
	if there := h.there(); strings.Contains(there, "c-00") || !strings.Contains(there, "c-59") || !strings.Contains(there, "c-58") {
		t.Errorf("the oldest go first, and the newest of each stays: %s", there)
	}
}

func whoseTheyAre(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	long := strings.Repeat("n", 62) + "-a"
	h.schedule(long, last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	label := func(k, v string) func(*snapshotv1.VolumeSnapshot) {
		return func(s *snapshotv1.VolumeSnapshot) {
			s.Labels[k] = v
			if v == "" {
				delete(s.Labels, k)
			}
		}
	}
	h.copyOf(claim, "mine-old", 9*time.Hour, true)
	h.copyOf(claim, "mine-new", 1*time.Hour, true)
	h.copyOf(claim, "others", 10*time.Hour, true, label(v1alpha1.LabelSchedule, "hourly2"))
	h.copyOf(claim, "by-hand", 11*time.Hour, true, label(v1alpha1.LabelSchedule, ""))
	h.copyOf(claim, "no-claim", 12*time.Hour, true, label(v1alpha1.LabelClaimUID, ""))
	h.copyOf(claim, "no-slot", 13*time.Hour, true, label(v1alpha1.LabelSlot, ""))
	h.copyOf(claim, "imported", 14*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) {
		s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("backup")}
	})
	h.copyOf(claim, "long-old", 15*time.Hour, true, label(v1alpha1.LabelSchedule, copies.LabelValue(long)))
	h.copyOf(claim, "long-new", 1*time.Hour, true, label(v1alpha1.LabelSchedule, copies.LabelValue(long)))
	h.settle()
	h.want("each schedule has its own, and strangers' stay", "by-hand imported long-new long-old mine-new no-claim no-slot others")
	if _, err := h.look(long); err != nil {
		t.Fatal(err)
	}
	h.want("the long one has its own too", "by-hand imported long-new mine-new no-claim no-slot others")
	// One that is made again takes over what the first one made.
	if err := h.c.Delete(t.Context(), h.get("hourly")); err != nil {
		t.Fatal(err)
	}
	h.copyOf(claim, "mine-newest", time.Minute, true)
	h.settle()
	h.want("there is no schedule", "by-hand imported long-new mine-new mine-newest no-claim no-slot others")
	h.schedule("hourly", last(1))
	h.settle()
	h.want("it is back", "by-hand imported long-new mine-newest no-claim no-slot others")
}

func notHealthy(t *testing.T, cfg *rest.Config) {
	for name, tc := range map[string]struct {
		why    string
		spec   func(*v1alpha1.SnapshotScheduleSpec)
		health metav1.ConditionStatus
		there  string
	}{
		"healthy":   {"its claim is gone, and the rule is Expire", func(*v1alpha1.SnapshotScheduleSpec) {}, metav1.ConditionFalse, ""},
		"suspended": {"never below keepLast", func(s *v1alpha1.SnapshotScheduleSpec) { s.Suspend = true }, metav1.ConditionFalse, "b c"},
		"degraded":  {"likewise", func(*v1alpha1.SnapshotScheduleSpec) {}, metav1.ConditionTrue, "b c"},
		"unknown":   {"nobody has looked yet", func(*v1alpha1.SnapshotScheduleSpec) {}, metav1.ConditionUnknown, "b c"},
		"invalid":   {"nothing is deleted", func(s *v1alpha1.SnapshotScheduleSpec) { s.TimeZone = "Mars/Olympus" }, metav1.ConditionFalse, "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := last(2)
			spec.OnClaimDelete = v1alpha1.ExpireCopies
			tc.spec(&spec)
			h := move(t, cfg, spec)
			h.degraded("hourly", tc.health)
			gone := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "0-0"}}
			for i, name := range []string{"a", "b", "c"} {
				h.copyOf(gone, name, time.Duration(9-i)*time.Hour, true)
			}
			h.settle()
			h.want(tc.why, tc.there)
		})
	}
}

// claimMadeAgain: a copy that waited in the snapshot-controller's queue while its
// claim was made again under its name is of the new one.
func claimMadeAgain(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	h.copyOf(claim, "older", 3*time.Hour, true)
	h.copyOf(claim, "last-good", 2*time.Hour, true)
	if err := h.c.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	h.change(claim, func() { claim.Finalizers = nil })
	again := h.claim("data", "", corev1.ClaimBound)
	h.copyOf(claim, "cut-late", -time.Minute, true) // asked for by the old one's UID
	h.settle()
	h.want("the last copy of the old claim is not pushed out by what the new one held", "cut-late last-good")
	h.copyOf(again, "next", -time.Hour, true)
	h.settle()
	h.want("it ages out as the new claim's", "last-good next")
}

// claimDeleted: failed copies hold back the deletion of their claim.
func claimDeleted(t *testing.T, cfg *rest.Config) {
	spec := last(3)
	spec.ReadyDeadlineSeconds = 60
	h := move(t, cfg, spec)
	claim := h.claim("data", "", corev1.ClaimBound)
	h.change(claim, func() {
		claim.Finalizers = append(claim.Finalizers, "snapshot.storage.kubernetes.io/pvc-as-source-protection")
	})
	h.copyOf(claim, "good-a", 3*time.Hour, true)
	h.copyOf(claim, "good-b", 2*time.Hour, true)
	h.copyOf(claim, "failed", 0, false)
	h.clock.Step(2 * time.Minute)
	h.settle()
	h.want("one failed", "failed good-a good-b")
	if err := h.c.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.want("it goes at once", "good-a good-b")
	h.change(claim, func() { claim.Finalizers = nil })
	h.settle()
	h.want("the claim has gone, and the newest stays", "good-b")
}

func refused(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	s := h.copyOf(claim, "a", 9*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) { s.Labels["test/refuse"] = "yes" })
	content := h.content(s, snapshotv1.VolumeSnapshotContentRetain)
	h.copyOf(claim, "b", 8*time.Hour, true)
	h.copyOf(claim, "c", 7*time.Hour, true)
	result := h.must()
	h.want("the refused one stays, and stands in nobody's way", "a c")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonDeletionRefused, "the house forbids it")
	if told := h.told(); !strings.Contains(told, v1alpha1.ReasonDeletionRefused) {
		t.Errorf("it is not told:\n%s", told)
	}
	if result.RequeueAfter != retryFirst {
		t.Errorf("it tries again in %v, want %v", result.RequeueAfter, retryFirst)
	}
	h.unmarked(content)
	tries := 0
	for range 6 * 60 { // six hours, minute by minute
		before := h.wire.writes.Load()
		h.must()
		if h.wire.writes.Load() > before {
			tries++
		}
		h.clock.Step(time.Minute)
	}
	if tries < 6 || tries > 12 {
		t.Errorf("in six hours there were %d tries, want about one an hour", tries)
	}
	h.change(s, func() { delete(s.Labels, "test/refuse") })
	h.clock.Step(retryMost)
	h.settle()
	h.want("nobody forbids it any more", "c")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionFalse, v1alpha1.ReasonNoneOverdue, "")
}

// unmarked wants a content as its class made it.
func (h *house) unmarked(c *snapshotv1.VolumeSnapshotContent) {
	h.t.Helper()
	if err := h.c.Get(h.t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
		h.t.Fatal(err)
	}
	if c.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentRetain || len(c.Labels) > 0 || c.Annotations[v1alpha1.AnnotationExpiredUID] != "" || c.DeletionTimestamp != nil {
		h.t.Errorf("the snapshot stays, and its content has policy %s, labels %v, annotations %v", c.Spec.DeletionPolicy, c.Labels, c.Annotations)
	}
}

// killedAnywhere: whichever write is the last of a manager that is killed, and
// whether or not that write arrives, the copy and its cloud snapshot go.
func killedAnywhere(t *testing.T, cfg *rest.Config) {
	for n := range int32(7) {
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprintf("after write %d, answered %t", n, answered), func(t *testing.T) {
				h := move(t, cfg, last(1))
				claim := h.claim("data", "", corev1.ClaimBound)
				content := h.content(h.copyOf(claim, "old", 2*time.Hour, true), snapshotv1.VolumeSnapshotContentRetain)
				h.content(h.copyOf(claim, "new", time.Hour, true), snapshotv1.VolumeSnapshotContentRetain)
				h.wire.lives.Store(n)
				h.wire.answered.Store(answered)
				gone := []string{}
				work := func() error {
					_, err := h.look("hourly")
					if err == nil {
						gone = append(gone, h.snapshotController()...)
						err = h.finishAll()
					}
					gone = append(gone, h.snapshotController()...)
					return err
				}
				err := work()
				h.restart()
				for range 3 {
					h.clock.Step(5 * time.Minute)
					if err := work(); err != nil {
						t.Fatal(err)
					}
				}
				h.want("the old one went", "new")
				if !slices.Equal(slices.Compact(gone), []string{content.Name}) {
					t.Errorf("cloud snapshots of %v went, want that of %s (the first manager ended with %v)", gone, content.Name, err)
				}
				if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(content), content); !apierrors.IsNotFound(err) {
					t.Errorf("the content is left: %v, %+v", err, content.ObjectMeta)
				}
			})
		}
	}
}

// killedThenKept: the manager is killed after each of its writes before the
// deletion, and then the copy is kept after all.
func killedThenKept(t *testing.T, cfg *rest.Config) {
	for name, keep := range map[string]func(h *house, s *snapshotv1.VolumeSnapshot){
		"held": func(h *house, s *snapshotv1.VolumeSnapshot) {
			h.change(s, func() { s.Annotations = map[string]string{v1alpha1.AnnotationHold: "wait"} })
		},
		"refused": func(h *house, s *snapshotv1.VolumeSnapshot) { h.change(s, func() { s.Labels["test/refuse"] = "yes" }) },
		"schedule gone": func(h *house, _ *snapshotv1.VolumeSnapshot) {
			if err := h.c.Delete(t.Context(), h.get("hourly")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, answered %t", name, answered), func(t *testing.T) {
				h := move(t, cfg, last(1))
				claim := h.claim("data", "", corev1.ClaimBound)
				s := h.copyOf(claim, "old", 2*time.Hour, true)
				content := h.content(s, snapshotv1.VolumeSnapshotContentRetain)
				h.copyOf(claim, "new", time.Hour, true)
				h.wire.lives.Store(1) // the mark
				h.wire.answered.Store(answered)
				if _, err := h.look("hourly"); err == nil {
					t.Fatal("the manager was not killed")
				}
				h.want("it was killed before the deletion", "new old")
				keep(h, s)
				h.restart()
				h.must()
				h.clock.Step(staleAfter + time.Second)
				h.must()
				h.want("it is kept", "new old")
				h.unmarked(content)
			})
		}
	}
}

// rescuedContent: somebody binds a content with marks to another snapshot.
func rescuedContent(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	s := h.copyOf(claim, "old", 2*time.Hour, true)
	content := h.content(s, snapshotv1.VolumeSnapshotContentRetain)
	h.copyOf(claim, "new", time.Hour, true)
	if _, err := h.look("hourly"); err != nil {
		t.Fatal(err)
	}
	h.snapshotController()
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(content), content); err != nil || content.Labels[v1alpha1.LabelContents] == "" {
		t.Fatalf("the content has no mark: %v", err)
	}
	h.change(content, func() { content.Spec.VolumeSnapshotRef.UID = ""; content.Spec.VolumeSnapshotRef.Name = "rescued" })
	h.must()
	h.unmarked(content)
}

func followClass(t *testing.T, cfg *rest.Config) {
	spec := last(1)
	spec.Retention.Contents = v1alpha1.FollowClass
	h := move(t, cfg, spec)
	claim := h.claim("data", "", corev1.ClaimBound)
	var contents []*snapshotv1.VolumeSnapshotContent
	for i := range 4 {
		policy := snapshotv1.VolumeSnapshotContentRetain
		if i == 2 {
			policy = snapshotv1.VolumeSnapshotContentDelete
		}
		contents = append(contents, h.content(h.copyOf(claim, fmt.Sprint("c-", i), time.Duration(9-i)*time.Hour, true), policy))
	}
	h.must()
	gone := h.snapshotController()
	h.must()
	h.want("the newest stays", "c-3")
	if !slices.Equal(gone, []string{contents[2].Name}) {
		t.Errorf("cloud snapshots of %v went, want that of %s alone", gone, contents[2].Name)
	}
	count := func(name string) float64 { return testutil.ToFloat64(h.r.retained.WithLabelValues(h.ns, name)) }
	h.condition("hourly", v1alpha1.ConditionContentsRetained, metav1.ConditionTrue, v1alpha1.ReasonFollowClass, "2 cloud snapshots")
	if n := count("hourly"); n != 2 {
		t.Errorf("the metric says %v, want 2", n)
	}
	h.clock.Step(2 * staleAfter)
	h.must()
	if err := h.c.Delete(t.Context(), h.get("hourly")); err != nil {
		t.Fatal(err)
	}
	h.restart()
	h.must()
	if n := count("hourly"); n != 2 {
		t.Errorf("the schedule has gone, what it left costs as before, and the metric says %v, want 2", n)
	}
	h.schedule("hourly", spec)
	for _, c := range contents[:2] {
		h.change(c, func() { c.Finalizers = nil })
		if err := h.c.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	h.must()
	h.condition("hourly", v1alpha1.ConditionContentsRetained, metav1.ConditionFalse, v1alpha1.ReasonNoneRetained, "")
	if n := testutil.CollectAndCount(h.r.retained); n != 0 {
		t.Errorf("%d series are left", n)
	}
}

func scheduleDeleted(t *testing.T, cfg *rest.Config) {
	spec := last(3)
	h := move(t, cfg, spec)
	s := h.get("hourly")
	h.must()
	if f := h.get("hourly").Finalizers; len(f) > 0 {
		t.Errorf("by default there are finalizers: %v", f)
	}
	h.change(s, func() { s.Spec.OnScheduleDelete = v1alpha1.DeleteCopies })
	h.must()
	if f := h.get("hourly").Finalizers; !slices.Equal(f, []string{v1alpha1.FinalizerSnapshots}) {
		t.Errorf("with Delete the finalizers are %v", f)
	}
	h.change(s, func() { s.Spec.OnScheduleDelete = v1alpha1.RetainCopies })
	h.must()
	if f := h.get("hourly").Finalizers; len(f) > 0 {
		t.Errorf("changed back, there are finalizers: %v", f)
	}
	h.change(s, func() { s.Spec.OnScheduleDelete = v1alpha1.DeleteCopies })
	h.must()
	claim := h.claim("data", "", corev1.ClaimBound)
	for i := range 8 {
		h.copyOf(claim, fmt.Sprint("c-", i), time.Duration(9-i)*time.Hour, i != 3)
	}
	held := h.copyOf(claim, "held", time.Hour, true, func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = map[string]string{v1alpha1.AnnotationHold: "audit" + strings.Repeat("ü", 2000)}
	})
	retained := h.content(held, snapshotv1.VolumeSnapshotContentRetain)
	restored := h.claim("restored", "c-7", corev1.ClaimPending)
	if err := h.c.Delete(t.Context(), h.get("hourly")); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.want("what is held stays, and what is in use waits", "c-7 held")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonHeldOrInUse, "restored")
	h.phase(restored, corev1.ClaimBound)
	h.settle()
	h.want("what is held stays", "held")
	h.unmarked(retained)
	if _, err := h.look("hourly"); err != nil {
		t.Fatal(err)
	}
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
		t.Errorf("the schedule is still there: %v", err)
	}
	told := h.told()
	if !strings.Contains(told, "CopiesKept") || !strings.Contains(told, "audit") {
		t.Errorf("the held copy is not told of:\n%s", told)
	}
	for _, note := range strings.Split(told, "\n") {
		if len(note) > 1024 || !utf8.ValidString(note) {
			t.Errorf("an event that the API server refuses, of %d bytes: %s", len(note), note)
		}
	}

	t.Run("changed back while it goes", func(t *testing.T) {
		spec := last(3)
		spec.OnScheduleDelete = v1alpha1.DeleteCopies
		h := move(t, cfg, spec)
		h.must()
		claim := h.claim("data", "", corev1.ClaimBound)
		h.copyOf(claim, "a", time.Hour, true, func(s *snapshotv1.VolumeSnapshot) { s.Labels["test/refuse"] = "yes" })
		s := h.get("hourly")
		if err := h.c.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		h.must()
		h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonDeletionRefused, "forbids")
		h.change(s, func() { s.Spec.OnScheduleDelete = v1alpha1.RetainCopies })
		h.must()
		if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
			t.Errorf("the schedule is still there: %v", err)
		}
		h.want("its copies stay", "a")
	})
}

func namespaceDeleted(t *testing.T, cfg *rest.Config) {
	spec := last(1)
	spec.OnScheduleDelete = v1alpha1.DeleteCopies
	h := move(t, cfg, spec)
	h.must()
	claim := h.claim("data", "", corev1.ClaimBound)
	h.copyOf(claim, "a", 2*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) { s.Labels["test/refuse"] = "yes" })
	h.copyOf(claim, "b", time.Hour, true)
	s := h.get("hourly")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.ns}}
	if err := h.c.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.want("its copies go with it, and not before by us", "a b")
	if err := h.c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
		t.Errorf("the schedule holds the namespace: %v", err)
	}
}

func groupGoesWhole(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	claims := map[string]*corev1.PersistentVolumeClaim{"x": h.claim("x", "", corev1.ClaimBound), "y": h.claim("y", "", corev1.ClaimBound)}
	member := func(group string) func(*snapshotv1.VolumeSnapshot) {
		return func(s *snapshotv1.VolumeSnapshot) {
			s.Status = &snapshotv1.VolumeSnapshotStatus{VolumeGroupSnapshotName: &group}
		}
	}
	groups := map[string]*groupv1.VolumeGroupSnapshot{}
	for i, name := range []string{"g1", "g2", "g3"} {
		groups[name] = &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}, Spec: groupv1.VolumeGroupSnapshotSpec{Source: groupv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{}}}}
		h.create(groups[name])
		for c, claim := range claims {
			h.copyOf(claim, name+"-"+c, time.Duration(9-i)*time.Hour, true, member(name))
		}
	}
	h.copyOf(claims["x"], "stranger", 9*time.Hour, true, member("g2"), func(s *snapshotv1.VolumeSnapshot) { s.Labels = nil })
	content := &groupv1.VolumeGroupSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "groupsnapcontent-" + string(groups["g1"].UID)}, Spec: groupv1.VolumeGroupSnapshotContentSpec{
		Driver: "ebs.csi.aws.com", DeletionPolicy: "Retain",
		Source:                 groupv1.VolumeGroupSnapshotContentSource{VolumeHandles: []string{"vol-1", "vol-2"}},
		VolumeGroupSnapshotRef: corev1.ObjectReference{Kind: "VolumeGroupSnapshot", Namespace: h.ns, Name: "g1", UID: groups["g1"].UID},
	}}
	h.create(content)
	h.must()
	for name, want := range map[string]bool{"g1": false, "g2": true, "g3": true} {
		err := h.c.Get(t.Context(), client.ObjectKeyFromObject(groups[name]), groups[name])
		if there := err == nil; there != want {
			t.Errorf("group %s is there: %t, want %t (%v)", name, there, want, err)
		}
	}
	h.want("members go with their group, by the snapshot-controller's hand", "g1-x g1-y g2-x g2-y g3-x g3-y stranger")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonDeletionRefused, "stranger")
	f := &finisher{kind: group, client: h.r.Live.(client.Client), marked: h.r.Live, live: h.r.Live, clock: h.clock}
	if _, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: content.Name}}); err != nil {
		t.Fatal(err)
	}
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(content), content); !apierrors.IsNotFound(err) {
		t.Errorf("the group's content is left, with policy %s: %v", content.Spec.DeletionPolicy, err)
	}
	h.clock.Step(window)
	h.must()
	h.want("the group has gone, so its members may go by themselves", "g2-x g2-y g3-x g3-y stranger")
}

// made makes a group as a schedule does, that was asked for some time ago.
func (h *house) made(name string, claims ...*corev1.PersistentVolumeClaim) *groupv1.VolumeGroupSnapshot {
	h.t.Helper()
	var all []copies.GroupClaim
	for _, c := range claims {
		all = append(all, copies.GroupClaim{Name: c.Name, UID: c.UID})
	}
	g := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: h.ns, Name: name, Labels: map[string]string{v1alpha1.LabelSchedule: "hourly", v1alpha1.LabelSlot: "slot-" + name},
		Annotations: map[string]string{v1alpha1.AnnotationClaims: copies.WriteClaims(all)},
	}, Spec: groupv1.VolumeGroupSnapshotSpec{Source: groupv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{}}}}
	h.create(g)
	return g
}

// memberOf has a copy belong to a group, as the snapshot-controller makes it.
func memberOf(g *groupv1.VolumeGroupSnapshot) func(*snapshotv1.VolumeSnapshot) {
	return func(s *snapshotv1.VolumeSnapshot) {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: groupv1.SchemeGroupVersion.String(), Kind: "VolumeGroupSnapshot", Name: g.Name, UID: g.UID}}
	}
}

// hasGroups wants these groups to be there.
func (h *house) hasGroups(why string, want ...string) {
	h.t.Helper()
	var all groupv1.VolumeGroupSnapshotList
	if err := h.c.List(h.t.Context(), &all, client.InNamespace(h.ns)); err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, g := range all.Items {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		h.t.Errorf("%s: there are the groups %v, want %v", why, names, want)
	}
}

// groupThatFailed: a group that was never cut has no members. It is kept while it
// is being made, is bounded as failed copies are, and pushes out none that is ready;
// one that is held stays.
func groupThatFailed(t *testing.T, cfg *rest.Config) {
	spec := last(1)
	spec.ReadyDeadlineSeconds = 3600
	spec.Retention.Failed = v1alpha1.FailedRetention{Keep: ptr.To[int32](0), DeleteAfterSeconds: 7200}
	h := move(t, cfg, spec)
	x, y := h.claim("x", "", corev1.ClaimBound), h.claim("y", "", corev1.ClaimBound)
	good := h.made("good", x, y)
	h.copyOf(x, "good-x", time.Hour, true, memberOf(good))
	h.copyOf(y, "good-y", time.Hour, true, memberOf(good))
	held := h.made("held", x, y)
	h.change(held, func() { held.Annotations[v1alpha1.AnnotationHold] = "look into it" })
	h.made("failed-1", x, y)
	h.made("failed-2", x, y)
	h.must()
	h.hasGroups("they are being made", "failed-1", "failed-2", "good", "held")
	h.clock.Step(61 * time.Minute)
	h.must()
	h.hasGroups("they failed, and no failed copies are kept", "good", "held")
	if told := h.told(); !strings.Contains(told, "failed-2") {
		t.Errorf("told of it: %s", told)
	}
	h.want("the newest ready copies", "good-x good-y")
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonHeldOrInUse, "held")
}

// groupNotMarked: a group with a member that nobody has marked as the schedule's
// stays: its mark is on its way. Where the schedule is being deleted nobody marks
// it any more, and it goes with the group, its content with it.
func groupNotMarked(t *testing.T, cfg *rest.Config) {
	spec := last(1)
	spec.OnScheduleDelete = v1alpha1.DeleteCopies
	h := move(t, cfg, spec)
	x, y := h.claim("x", "", corev1.ClaimBound), h.claim("y", "", corev1.ClaimBound)
	old, newest := h.made("old", x, y), h.made("newest", x, y)
	bare := func(s *snapshotv1.VolumeSnapshot) { s.Labels = nil }
	h.copyOf(x, "old-x", 9*time.Hour, true, memberOf(old))
	unmarked := h.copyOf(y, "old-y", 9*time.Hour, true, memberOf(old), bare)
	content := h.content(unmarked, snapshotv1.VolumeSnapshotContentRetain)
	h.copyOf(x, "newest-x", time.Hour, true, memberOf(newest))
	h.copyOf(y, "newest-y", time.Hour, true, memberOf(newest))
	h.clock.Step(25 * time.Hour) // old-y, which is not seen, counts as failed
	h.must()
	h.clock.Step(25 * time.Hour)
	h.must()
	h.hasGroups("a member of old is not marked", "newest", "old")
	s := h.get("hourly")
	if err := h.c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	h.clock.Step(retryMost)
	h.must()
	h.hasGroups("the schedule takes all along")
	if err := h.c.Get(t.Context(), client.ObjectKeyFromObject(content), content); err != nil || content.Labels[v1alpha1.LabelContents] != string(v1alpha1.DeleteContents) {
		t.Errorf("the content of the member without marks is left behind: %v, %v", content.Labels, err)
	}
}

func steadyState(t *testing.T, cfg *rest.Config) {
	spec := last(2)
	spec.OnScheduleDelete = v1alpha1.DeleteCopies
	h := move(t, cfg, spec)
	claim := h.claim("data", "", corev1.ClaimBound)
	for i := range 4 {
		h.content(h.copyOf(claim, fmt.Sprint("c-", i), time.Duration(9-i)*time.Hour, true), snapshotv1.VolumeSnapshotContentRetain)
	}
	h.copyOf(claim, "held", 20*time.Hour, true, func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = map[string]string{v1alpha1.AnnotationHold: "audit"}
	})
	for range 3 {
		h.settle()
		h.snapshotController()
	}
	h.want("the rest has gone", "c-2 c-3 held")
	h.restart()
	for range 10 {
		h.must()
		h.clock.Step(10 * time.Minute)
	}
	if n := h.wire.writes.Load(); n != 0 {
		t.Errorf("%d writes where nothing changes", n)
	}
}

// afterLook does something right after the snapshots were read from the API server.
type afterLook struct {
	client.Reader
	do func()
}

func (a afterLook) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := a.Reader.List(ctx, list, opts...)
	if _, is := list.(*snapshotv1.VolumeSnapshotList); is {
		a.do()
	}
	return err
}

// heldAtTheLastMoment: a hold is written between the last look and the deletion.
func heldAtTheLastMoment(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, last(1))
	claim := h.claim("data", "", corev1.ClaimBound)
	s := h.copyOf(claim, "old", 2*time.Hour, true)
	content := h.content(s, snapshotv1.VolumeSnapshotContentRetain)
	h.copyOf(claim, "new", time.Hour, true)
	live, done := h.r.Live, false
	h.r.Live = afterLook{live, func() {
		if !done {
			h.change(s, func() { s.Annotations = map[string]string{v1alpha1.AnnotationHold: "at the last moment"} })
		}
		done = true
	}}
	if result := h.must(); result.RequeueAfter != retryChanged {
		t.Errorf("it looks again in %v, want %v", result.RequeueAfter, retryChanged)
	}
	h.want("it is held", "new old")
	h.unmarked(content)
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionFalse, v1alpha1.ReasonNoneOverdue, "")
	h.clock.Step(retryChanged)
	h.must()
	h.condition("hourly", v1alpha1.ConditionCopiesOverdue, metav1.ConditionTrue, v1alpha1.ReasonHeldOrInUse, "at the last moment")
}
