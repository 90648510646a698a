//go:build envtest

package orphan

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestOrphans sweeps by hand against one real API server.
func TestOrphans(t *testing.T) {
	cfg := testenv.APIServer(t)
	refuse(t, cfg)
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"C18 orphan":                  orphan,
		"changed before the deletion": changedBefore,
		"killed anywhere":             killedAnywhere,
		"two leaders":                 twoLeaders,
		"used while no manager ran":   usedMeanwhile,
		"the clock leaps ahead":       clockLeaps,
		"set deleted, and made again": madeAgain,
		"set being made anew":         beingMadeAnew,
		"guardrails":                  guardrails,
		"policy not valid":            policyNotValid,
		"refused":                     refused,
		"server errors":               serverErrors,
		"not looked up":               notLookedUp,
		"no class":                    noClass,
		"steady state":                steadyState,
		"many":                        many,
		"Pods that come and go":       comeAndGo,
		"Delete":                      withoutSnapshot,
		"not under a policy any more": policyGone,
	} {
		t.Run(name, func(t *testing.T) { test(t, cfg) })
	}
}

// refuse makes the API server refuse the deletion of claims with a label, and
// snapshots of claims whose names begin so.
func refuse(t *testing.T, cfg *rest.Config) {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		name, group, resource, expression string
		operation                         admissionv1.OperationType
	}{
		{"no-deletion", "", "persistentvolumeclaims", "!('test/refuse' in oldObject.metadata.?labels.orValue({}))", admissionv1.Delete},
		{"no-snapshot", snapshotv1.GroupName, "volumesnapshots", "!('test/refuse' in namespaceObject.metadata.?labels.orValue({}))", admissionv1.Create},
	} {
		for _, o := range []client.Object{
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{p.operation},
					Rule:       admissionv1.Rule{APIGroups: []string{p.group}, APIVersions: []string{"*"}, Resources: []string{p.resource}},
				}}}},
				Validations: []admissionv1.Validation{{Expression: p.expression, Message: "the house forbids it"}},
			}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}},
		} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{"test/refuse": "yes"}}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	probe := func() error {
		return c.Create(t.Context(), &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "probe", Name: "probe"},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("c")}},
		}, client.DryRunAll)
	}
	for begun := time.Now(); !apierrors.IsInvalid(probe()) && !apierrors.IsForbidden(probe()); {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("the policies do not hold yet: %v", probe())
		}
		<-time.After(100 * time.Millisecond)
	}
}

func orphan(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 3)
	other := h.set("web", 2)
	for i := range 2 {
		h.claim("web", other, i)
	}
	h.sweep()
	h.want("all is used", 0, "here", "here", "here")
	h.scale("pg", 2)
	h.scale("web", 1)
	p := h.pod("pg-2", "data-pg-2")
	h.sweep()
	h.want("its Pod ends", 0, "here", "here", "here")
	if err := h.c.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	a := h.attach("data-pg-2")
	h.sweep()
	h.want("its volume is attached", 0, "here", "here", "here")
	if err := h.c.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	h.sweep()
	h.want("idle", 0, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "Orphaned") || !strings.Contains(told, "StatefulSet pg has no ordinal 2 any more") {
		t.Errorf("nothing was told of it:\n%s", told)
	}
	h.clock.Step(after - time.Second)
	h.sweep()
	h.want("not quite due", 0, "here", "here", "marked")
	if n, b := testutil.ToFloat64(h.s.instruments.count.WithLabelValues(h.ns)), testutil.ToFloat64(h.s.instruments.bytes.WithLabelValues(h.ns)); n != 2 || b != 2<<30 {
		t.Errorf("%v orphans of %v bytes are counted, want 2 of 2 GiB", n, b)
	}
	h.scale("web", 2) // in time
	h.clock.Step(time.Second)
	h.sweep()
	h.want("due", 1, "here", "here", "marked")
	if got := h.state("data-web-1"); got != "here" {
		t.Errorf("the claim whose set was scaled up again is %s", got)
	}
	snap := h.snapshots()[0]
	if snap.Labels[v1alpha1.LabelOrphanOf] != "pg" || len(snap.OwnerReferences) != 0 || snap.Annotations[v1alpha1.AnnotationClaim] != h.ns+"/data-pg-2" ||
		*snap.Spec.VolumeSnapshotClassName != h.ns || *snap.Spec.Source.PersistentVolumeClaimName != "data-pg-2" || snap.Annotations[v1alpha1.AnnotationSetOrdinal] != "2" {
		t.Errorf("the snapshot is %+v", snap)
	}
	h.clock.Step(24 * time.Hour)
	h.sweep()
	h.want("not ready for a day", 1, "here", "here", "marked")
	h.ready()
	h.sweep()
	h.want("ready", 1, "here", "here", "going")
	if told := h.told(); !strings.Contains(told, "OrphanSnapshot") || !strings.Contains(told, "OrphanDeleted") || !strings.Contains(told, "OrphanAdopted") {
		t.Errorf("not all was told:\n%s", told)
	}
	if got := testutil.ToFloat64(h.s.instruments.deleted); got != 1 {
		t.Errorf("%v deletions are counted", got)
	}
}

// toReady brings data-pg-2 to where the next sweep deletes it.
func (h *house) toReady() {
	h.t.Helper()
	h.sweep()
	h.clock.Step(after + time.Second)
	h.sweep()
	h.ready()
	h.want("its copy is ready", 1, "here", "here", "marked")
}

// changedBefore: something happens between the plan, made by what the informers
// show, and the deletion.
func changedBefore(t *testing.T, cfg *rest.Config) {
	for what, happens := range map[string]func(*house){
		"scaled up":        func(h *house) { h.scale("pg", 3) },
		"set is made anew": func(h *house) { h.remade = "pg" },
		"mounted":          func(h *house) { h.pod("shell", "data-pg-2") },
		"cloned": func(h *house) {
			h.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "rescue"}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("gp3"),
				Resources:     corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data-pg-2"},
			}})
		},
		"attached": func(h *house) { h.attach("data-pg-2") },
		"policy reports": func(h *house) {
			h.rules(func(s *v1alpha1.StoragePolicySpec) { s.Orphans.Action = v1alpha1.ReportOrphans })
		},
		"policy waits": func(h *house) { h.rules(func(s *v1alpha1.StoragePolicySpec) { s.Orphans.AfterSeconds *= 2 }) },
		"another policy": func(h *house) {
			p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: h.policy + "-first"}, Spec: v1alpha1.StoragePolicySpec{
				Priority: 9, Match: v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": h.ns}}},
				Orphans: &v1alpha1.PolicyOrphans{Action: v1alpha1.ReportOrphans},
			}}
			h.create(p)
			h.t.Cleanup(func() { _ = h.c.Delete(context.Background(), p) })
		},
		"protected": func(h *house) {
			h.rules(func(s *v1alpha1.StoragePolicySpec) {
				s.Guardrails = &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowOverrideOnly}}
			})
		},
		"kept": func(h *house) {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "data-pg-2"}}
			h.change(c, func() { c.Annotations[v1alpha1.AnnotationKeepOrphan] = "wait" })
		},
		"mark moved": func(h *house) {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "data-pg-2"}}
			h.change(c, func() { c.Annotations[v1alpha1.AnnotationOrphanedSince] = h.clock.Now().UTC().Format(time.RFC3339) })
		},
		"snapshot deleted": func(h *house) {
			snap := h.snapshots()[0]
			if err := h.c.Delete(h.t.Context(), &snap); err != nil {
				h.t.Fatal(err)
			}
		},
		"said to be used": func(h *house) {
			c := &corev1.PersistentVolumeClaim{}
			if err := h.c.Get(h.t.Context(), client.ObjectKey{Namespace: h.ns, Name: "data-pg-2"}, c); err != nil {
				h.t.Fatal(err)
			}
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(h.clock.Now())}}
			if err := h.c.Status().Update(h.t.Context(), c); err != nil {
				h.t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
			h.toReady()
			h.live.happens = func() { happens(h) }
			h.sweep()
			if h.live.happens != nil {
				t.Fatal("nothing was read live: this shows nothing")
			}
			if got := h.state("data-pg-2"); got != "marked" {
				t.Errorf("the claim is %s, want it as it was", got)
			}
		})
	}
	t.Run("changed after the last read", func(t *testing.T) {
		h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
		h.toReady()
		c := &corev1.PersistentVolumeClaim{}
		if err := h.c.Get(t.Context(), client.ObjectKey{Namespace: h.ns, Name: "data-pg-2"}, c); err != nil {
			t.Fatal(err)
		}
		old := c.DeepCopy()
		h.change(c, func() { c.Labels["changed"] = "yes" })
		err := h.s.Client.Delete(t.Context(), old, client.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion})
		if !apierrors.IsConflict(err) {
			t.Errorf("a deletion by what was read before: %v, want a conflict", err)
		}
	})
}

// killedAnywhere: the manager is killed around each of its writes in turn. Each
// time another goes on, and the claim goes only after a copy that is younger than
// that one's watch.
func killedAnywhere(t *testing.T, cfg *rest.Config) {
	for _, answered := range []bool{true, false} {
		for lives := int32(0); ; lives++ {
			h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
			h.wire.lives.Store(lives)
			h.wire.answered.Store(answered)
			killed := false
			for range 6 {
				if err := h.s.Sweep(t.Context()); err != nil {
					if !strings.Contains(err.Error(), errDead.Error()) {
						t.Fatal(err)
					}
					killed = true
					h.clock.Step(time.Minute)
					h.restart()
				}
				before := len(h.snapshots())
				if h.state("data-pg-2") == "going" {
					if before == 0 {
						t.Fatal("the claim went without a copy")
					}
					break
				}
				h.ready()
				h.clock.Step(after + time.Second)
			}
			if got := h.state("data-pg-2"); got != "going" {
				t.Errorf("killed after %d writes (answered %t): the claim is %s", lives, answered, got)
			}
			if n := len(h.snapshots()); n > 2 {
				t.Errorf("killed after %d writes (answered %t): %d copies, want at most one for each manager", lives, answered, n)
			}
			if !killed {
				if lives < 3 {
					t.Errorf("it takes %d writes: this shows little", lives)
				}
				break
			}
		}
	}
}

func twoLeaders(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
	second := &wire{}
	second.lives.Store(-1)
	other, _, _ := h.sweeper(second)
	for range 5 {
		var both sync.WaitGroup
		for _, s := range []*Sweeper{h.s, other} {
			both.Go(func() {
				if err := s.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		h.ready()
		h.clock.Step(after + time.Second)
	}
	h.want("two sweep at once", 1, "here", "here", "going")
}

// usedMeanwhile: the set was up while no manager ran. What is in the copy of
// before is not all.
func usedMeanwhile(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
	h.toReady()
	h.clock.Step(time.Hour)
	h.restart()
	h.sweep()
	h.want("the copy is of before, and the driver's clock may be behind", 1, "here", "here", "marked")
	h.clock.Step(ahead)
	h.sweep()
	h.want("the copy is of before", 2, "here", "here", "marked")
	h.sweep()
	h.want("the new one is not ready", 2, "here", "here", "marked")
	h.ready()
	h.sweep()
	h.want("the manager has only begun to watch", 2, "here", "here", "marked")
	h.clock.Step(trust)
	h.sweep()
	h.want("it is ready, and has been watched", 2, "here", "here", "going")
}

// leaping is a clock that was set ahead since others were read from it.
type leaping struct {
	*clocktesting.FakeClock
	by time.Duration
}

func (l leaping) Now() time.Time { return l.FakeClock.Now().Add(l.by) }

// clockLeaps: the clock of the leader is set a week ahead. Nothing is due for that.
func clockLeaps(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	h.sweep()
	h.s.Clock = leaping{h.clock, 7 * 24 * time.Hour}
	for range 2 {
		h.sweep()
		h.clock.Step(after / 2)
	}
	h.want("no time went by", 0, "here", "here", "marked")
	h.sweep()
	h.want("now it did", 0, "here", "here", "going")
}

func madeAgain(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 3)
	set := h.set("gone", 1)
	h.claim("gone", set, 0)
	remove := func(name string) {
		t.Helper()
		o := h.get(name)
		if err := h.c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	remove("pg")
	remove("gone")
	h.sweep()
	h.want("the set is gone", 0, "marked", "marked", "marked")
	h.set("pg", 2)
	h.sweep()
	h.want("another takes two of them, by their names", 0, "here", "here", "marked")
	if got := h.state("data-gone-0"); got != "marked" {
		t.Errorf("the claim of the set that stays away is %s", got)
	}
}

// beingMadeAnew: between its deletion and its creation a set is not there, for as
// long as the API server refuses it, and some of its Pods may not be either.
func beingMadeAnew(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	h.sweep()
	h.want("scaled down before", 0, "here", "here", "marked")
	h.remade = "pg"
	if err := h.c.Delete(t.Context(), h.get("pg")); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		h.sweep()
		h.clock.Step(after)
	}
	h.want("gone, and saved", 0, "here", "here", "marked")
	h.set("pg", 2)
	h.remade = ""
	h.sweep()
	h.want("there again: what was left before is due", 0, "here", "here", "going")
}

// guardrails: what protects claims holds for the manager too.
func guardrails(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
	h.rules(func(s *v1alpha1.StoragePolicySpec) {
		s.Guardrails = &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowOverrideOnly}}
	})
	h.sweep()
	h.clock.Step(after + time.Second)
	h.sweep()
	h.want("a copy would be in vain", 0, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "OrphanBlocked") || !strings.Contains(told, "wanted is an override") {
		t.Errorf("nothing was told of the refusal:\n%s", told)
	}
	if got := testutil.ToFloat64(h.s.instruments.blocked.WithLabelValues(h.ns)); got != 1 {
		t.Errorf("%v are counted as blocked, want 1", got)
	}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "data-pg-2"}}
	h.change(c, func() { c.Annotations[v1alpha1.AnnotationOverrideDeletion] = "ticket 4711" })
	h.sweep()
	h.ready()
	h.sweep()
	h.want("overridden", 1, "here", "here", "going")

	h = move(t, cfg, v1alpha1.DeleteOrphans, 2)
	h.rules(func(s *v1alpha1.StoragePolicySpec) {
		s.Guardrails = &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowRecentSnapshot}}
	})
	h.sweep()
	h.clock.Step(after + time.Second)
	h.sweep()
	h.want("Delete takes no copy, and the guardrail wants one", 0, "here", "here", "marked")
	h.create(&snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "by-hand"}, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data-pg-2")}}})
	h.ready()
	h.sweep()
	h.want("somebody took one", 1, "here", "here", "going")

	h = move(t, cfg, v1alpha1.DeleteOrphans, 2)
	h.rules(func(s *v1alpha1.StoragePolicySpec) {
		s.Guardrails = &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowRecentSnapshot, SnapshotNotOlderThanSeconds: 3600}}
	})
	h.create(&snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "by-hand"}, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data-pg-2")}}})
	h.ready()
	h.sweep()
	h.clock.Step(2 * after)
	h.sweep()
	h.want("its copy is too old", 1, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "at most 1h0m0s old") {
		t.Errorf("the refusal does not tell what is wanted:\n%s", told)
	}
	h.clock.Step(Every)
	h.sweep()
	if told := h.told(); told != "" {
		t.Errorf("a refusal is told in each sweep, since the copy grows older:\n%s", told)
	}
}

// policyNotValid: one that slipped by the webhook holds nothing, and may be the one
// that would keep the claim.
func policyNotValid(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	odd := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{GenerateName: "not-valid-"}, Spec: v1alpha1.StoragePolicySpec{
		Priority: 9, Orphans: &v1alpha1.PolicyOrphans{Action: v1alpha1.ReportOrphans},
		Match: v1alpha1.PolicyMatch{ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like", Values: []string{"db"}}}}},
	}}
	h.create(odd)
	gone := func() {
		if err := h.c.Delete(context.Background(), odd); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	t.Cleanup(gone)
	h.sweep()
	h.clock.Step(after)
	h.sweep()
	h.want("nobody knows whether it is kept", 0, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "OrphanBlocked") || !strings.Contains(told, odd.Name) {
		t.Errorf("nothing was told of the policy:\n%s", told)
	}
	gone()
	h.clock.Step(retryFirst)
	h.sweep()
	h.want("it is gone", 0, "here", "here", "going")
}

// refused: the API server refuses the snapshot, and then the deletion. Each is
// told, and tried again after ever longer times.
func refused(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.ns}}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "data-pg-2"}}
	h.change(ns, func() { ns.Labels["test/refuse"] = "yes" })
	h.change(c, func() { c.Labels["test/refuse"] = "yes" })
	h.sweep()
	h.clock.Step(after + time.Second)
	// tries counts the writes of two hours.
	tries := func() int32 {
		before := h.wire.writes.Load()
		for range 240 {
			h.sweep()
			if n := testutil.ToFloat64(h.s.instruments.blocked.WithLabelValues(h.ns)); n != 1 {
				t.Fatalf("%v are counted as blocked, want 1 all the time, also when it is tried again: an alert waits for an hour without a break", n)
			}
			h.clock.Step(Every)
		}
		return h.wire.writes.Load() - before
	}
	if n := tries(); n < 4 || n > 8 {
		t.Errorf("a snapshot that is refused is tried %d times in two hours, want a minute, two, four, … up to an hour", n)
	}
	h.want("no copy", 0, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "a snapshot of it is refused") || !strings.Contains(told, "the house forbids it") {
		t.Errorf("nothing was told:\n%s", told)
	}
	h.change(ns, func() { delete(ns.Labels, "test/refuse") })
	for begun := time.Now(); len(h.snapshots()) == 0; { // the admission plugin's informer
		if time.Since(begun) > 20*time.Second {
			t.Fatal("it is not tried again")
		}
		h.clock.Step(time.Hour)
		h.sweep()
	}
	h.ready()
	if n := tries(); n < 4 || n > 8 {
		t.Errorf("a deletion that is refused is tried %d times in two hours", n)
	}
	h.want("its deletion is refused", 1, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "its deletion is refused") {
		t.Errorf("nothing was told:\n%s", told)
	}
	if got := h.s.Told(c.UID); !strings.Contains(got, "the house forbids it") {
		t.Errorf("the status will say %q", got)
	}
	h.change(c, func() { delete(c.Labels, "test/refuse") })
	h.clock.Step(time.Hour)
	h.sweep()
	h.want("let through", 1, "here", "here", "going")
}

// serverErrors: more claims than a sweep deletes fail each time, with no clear no.
// Those of another set go all the same, and what fails is not tried without end.
func serverErrors(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 3)
	const failing, others = deletionsEach + 2, deletionsEach + 1
	kv := h.set("kv", 0) // by its name and its age it comes first
	for i := range failing {
		h.claim("kv", kv, i)
	}
	h.sweep()
	h.clock.Step(time.Minute)
	web := h.set("web", 0)
	for i := range others {
		h.claim("web", web, i)
	}
	h.sweep()
	tries := map[string]int{}
	h.wire.breaks = func(req *http.Request) bool {
		name := path.Base(req.URL.Path)
		if req.Method != http.MethodDelete || !strings.HasPrefix(name, "data-kv-") {
			return false
		}
		tries[name]++
		return true
	}
	h.clock.Step(after + time.Second)
	for range 3 { // as many as it takes where each sweep deletes five
		if err := h.s.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Fatalf("what fails is not reported: %v", err)
		}
		h.clock.Step(Every)
	}
	for i := range others {
		if name := fmt.Sprint("data-web-", i); h.state(name) != "going" {
			t.Errorf("claim %s is %s: those that fail starve it", name, h.state(name))
		}
	}
	if told := h.told(); !strings.Contains(told, "OrphanBlocked") || !strings.Contains(told, "failed calling webhook") {
		t.Errorf("nothing was told:\n%s", told)
	}
	clear(tries)
	for range 240 {
		_ = h.s.Sweep(t.Context())
		if n := testutil.ToFloat64(h.s.instruments.blocked.WithLabelValues(h.ns)); n != failing {
			t.Fatalf("%v are counted as blocked, want %d", n, failing)
		}
		h.clock.Step(Every)
	}
	for i := range failing {
		if n := tries[fmt.Sprint("data-kv-", i)]; n < 3 || n > 8 {
			t.Errorf("data-kv-%d is tried %d times in two hours, want a minute, two, four, … up to an hour", i, n)
		}
	}
	h.wire.breaks = nil
	h.clock.Step(retryMost)
	for range 2 {
		h.sweep()
	}
	for i := range failing {
		if got := h.state(fmt.Sprint("data-kv-", i)); got != "going" {
			t.Errorf("data-kv-%d is %s, though nothing fails any more", i, got)
		}
	}
}

// notLookedUp: a sweep that cannot look at a claim forgets nothing about it.
func notLookedUp(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "data-pg-2"}}
	h.change(c, func() { c.Labels["test/refuse"] = "yes" })
	h.sweep()
	h.clock.Step(after)
	for range 20 { // after ten minutes it is put off by eight and more
		h.sweep()
		h.clock.Step(Every)
	}
	_ = h.told()
	before := h.wire.writes.Load()
	h.blind = true
	if err := h.s.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Fatalf("Pods could not be read: %v", err)
	}
	for what, got := range map[string]float64{
		"orphans": testutil.ToFloat64(h.s.instruments.count.WithLabelValues(h.ns)), "blocked": testutil.ToFloat64(h.s.instruments.blocked.WithLabelValues(h.ns)),
	} {
		if got != 1 {
			t.Errorf("%v %s are counted, want 1 as before", got, what)
		}
	}
	if got := h.s.Told(c.UID); !strings.Contains(got, "the house forbids it") {
		t.Errorf("the status will say %q", got)
	}
	h.blind = false
	h.sweep()
	if n := h.wire.writes.Load() - before; n != 0 {
		t.Errorf("%d tries, want none: it is put off still", n)
	}
	if told := h.told(); told != "" {
		t.Errorf("it is told once more:\n%s", told)
	}
}

func noClass(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 2)
	h.mark(h.ns, false)
	h.sweep()
	h.clock.Step(after + time.Second)
	h.sweep()
	h.want("no class is marked as default", 0, "here", "here", "marked")
	if told := h.told(); !strings.Contains(told, "OrphanBlocked") || !strings.Contains(told, v1alpha1.AnnotationSnapshotClass) {
		t.Errorf("nothing was told:\n%s", told)
	}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: "data-pg-2"}}
	h.change(c, func() { c.Annotations[v1alpha1.AnnotationSnapshotClass] = h.ns })
	h.sweep()
	h.want("the claim names one", 1, "here", "here", "marked")
}

// steadyState: what is the same is not written again.
func steadyState(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.ReportOrphans, 1)
	h.sweep()
	h.want("marked", 0, "here", "marked", "marked")
	h.clock.Step(2 * after)
	h.sweep()
	_ = h.told()
	before := h.wire.writes.Load()
	for range 10 {
		h.clock.Step(Every)
		h.sweep()
	}
	if n := h.wire.writes.Load() - before; n != 0 {
		t.Errorf("%d writes in ten sweeps of a cluster at rest", n)
	}
	if told := h.told(); told != "" {
		t.Errorf("events of a cluster at rest:\n%s", told)
	}
	h.restart()
	h.sweep()
	h.want("the mark survives the manager", 0, "here", "marked", "marked")
	if n := h.wire.writes.Load(); n != 0 {
		t.Errorf("%d writes by the next manager", n)
	}
}

// many: each sweep takes some, and in the end all are gone.
func many(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.SnapshotThenDelete, 3)
	uid := h.set("kv", 0)
	for i := range 12 {
		h.claim("kv", uid, i)
	}
	h.sweep()
	h.clock.Step(after + time.Second)
	for want := snapshotsEach; want < 12; want += snapshotsEach {
		h.sweep()
		if n := len(h.snapshots()); n != want {
			t.Fatalf("%d snapshots, want %d", n, want)
		}
	}
	h.sweep()
	h.ready()
	for want := deletionsEach; want < 12; want += deletionsEach {
		h.sweep()
		going := 0
		for i := range 12 {
			if h.state(fmt.Sprint("data-kv-", i)) == "going" {
				going++
			}
		}
		if going != want {
			t.Fatalf("%d are going, want %d", going, want)
		}
	}
}

func withoutSnapshot(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	h.sweep()
	h.clock.Step(after - time.Second)
	h.sweep()
	h.want("not quite due", 0, "here", "here", "marked")
	h.clock.Step(time.Second)
	h.sweep()
	h.want("due", 0, "here", "here", "going")
}

func policyGone(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	h.sweep()
	h.want("marked", 0, "here", "here", "marked")
	h.rules(func(s *v1alpha1.StoragePolicySpec) {
		s.Orphans, s.Guardrails = nil, &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectNever}}
	})
	h.clock.Step(2 * after)
	h.sweep()
	h.want("nobody watches it: what was counted is void", 0, "here", "here", "here")
}

// comeAndGo: informers hear of a Pod that is there in no sweep.
func comeAndGo(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, v1alpha1.DeleteOrphans, 2)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: testScheme(t), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Transform: SlimPod},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{
		Client: mgr.GetClient(), World: world.Of(mgr, nil), Kinds: knows{}, Remade: h.isRemade, Events: events.NewFakeRecorder(100), Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
	})
	if err := s.Watch(t.Context(), mgr.GetCache()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("informers are not synced")
	}
	if err := s.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	h.want("marked by what informers show", 0, "here", "here", "marked")
	p := h.pod("passer-by", "data-pg-2")
	if err := h.c.Delete(ctx, p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: h.ns, Name: "data-pg-2"}
	mark := func() time.Time {
		c := &corev1.PersistentVolumeClaim{}
		if err := h.c.Get(ctx, key, c); err != nil {
			t.Fatal(err)
		}
		since, _ := Since(c)
		return since
	}
	first := mark()
	if err := testenv.Eventually(ctx, 30*time.Second, "the mark begins anew", func(ctx context.Context) (string, error) {
		if err := s.Sweep(ctx); err != nil {
			return "", err
		}
		if now := mark(); now.After(first) && !s.uses.last(key).After(now) {
			return "", nil
		}
		return fmt.Sprintf("it is %v, and the last use %v", mark(), s.uses.last(key)), nil
	}); err != nil {
		t.Error(err)
	}
	h.pod("stays", "data-pg-2")
	if err := testenv.Eventually(ctx, 30*time.Second, "the mark comes off", func(ctx context.Context) (string, error) {
		if err := s.Sweep(ctx); err != nil {
			return "", err
		}
		if got := h.state("data-pg-2"); got != "here" {
			return "it is " + got, nil
		}
		return "", nil
	}); err != nil {
		t.Error(err)
	}
}
