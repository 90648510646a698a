package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// nobody may do what is asked of it: each SubjectAccessReview answers no.
type nobody struct{ client.Writer }

func (nobody) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

func ptr[T any](v T) *T { return &v }

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// webhook judges by a world of these objects, in which nobody may override.
func webhook(t *testing.T, objects ...client.Object) *Webhook {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&snapshotv1.VolumeSnapshot{}, snapshots.ByClaim, func(o client.Object) []string {
		return []string{*o.(*snapshotv1.VolumeSnapshot).Spec.Source.PersistentVolumeClaimName}
	}).WithIndex(&snapshotv1.VolumeSnapshot{}, snapshots.ByGroup, func(o client.Object) []string {
		return []string{copies.GroupOf(o.(*snapshotv1.VolumeSnapshot))}
	}).Build()
	return &Webhook{World: &world.World{Cache: c, Live: named{c}, Index: snapshots.NewIndex(indexed{}), Clock: clocktesting.NewFakePassiveClock(now)}, Authorizer: world.Authorizer{Client: nobody{}}}
}

// named asks for nothing without a name, as client-go does, and the fake client not.
type named struct{ client.Reader }

func (n named) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key.Name == "" {
		return errors.New("resource name may not be empty")
	}
	return n.Reader.Get(ctx, key, o, opts...)
}

// indexed is the fake client, which is given its index when it is made.
type indexed struct{}

func (indexed) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

func database() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
}

// data is a bound claim that was made an hour ago.
func data(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "data", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	c.Spec.VolumeName = "pv"
	if change != nil {
		change(c)
	}
	return c
}

// cut is a ready snapshot of the claim.
func cut(name string, at time.Time) *snapshotv1.VolumeSnapshot {
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name}}
	s.Spec.Source.PersistentVolumeClaimName = ptr("data")
	s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr(true), CreationTime: ptr(metav1.NewTime(at))}
	return s
}

// untold is one of a driver that does not tell when it cuts.
func untold(name string, asked time.Time) *snapshotv1.VolumeSnapshot {
	s := cut(name, time.Unix(0, 0))
	s.CreationTimestamp = metav1.NewTime(asked)
	return s
}

func policyOf(spec v1alpha1.StoragePolicySpec) *v1alpha1.StoragePolicy {
	return &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}, Spec: spec}
}

// request asks for a change from one object to another; nil: there is none.
func request(t *testing.T, op admissionv1.Operation, old, now *snapshotv1.VolumeSnapshot) *admit.Request {
	t.Helper()
	r := &admit.Request{Operation: op, Namespace: "db"}
	for to, s := range map[*runtime.RawExtension]*snapshotv1.VolumeSnapshot{&r.OldObject: old, &r.Object: now} {
		if s == nil {
			continue
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		to.Raw, r.Name = raw, s.Name
	}
	return r
}

// TestDeletion asks for each snapshot whether it may go while all others are
// there, as a deletion of all at once does.
func TestDeletion(t *testing.T) {
	protects := policyOf(v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{
		Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot},
	}})
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		why   string
		there []*snapshotv1.VolumeSnapshot
		stay  []string
	}{
		"the only one":  {"it is the last copy", []*snapshotv1.VolumeSnapshot{cut("a", ago(time.Minute))}, []string{"a"}},
		"older":         {"a newer one vouches for it", []*snapshotv1.VolumeSnapshot{cut("a", ago(time.Minute)), cut("b", ago(2*time.Minute))}, []string{"a"}},
		"same time":     {"one of them stays", []*snapshotv1.VolumeSnapshot{cut("b", ago(time.Minute)), cut("a", ago(time.Minute)), cut("c", ago(time.Minute))}, []string{"a"}},
		"earlier claim": {"it holds nothing of this claim", []*snapshotv1.VolumeSnapshot{cut("a", ago(time.Hour+time.Second))}, nil},
		"as the claim":  {"it may hold what the claim began with", []*snapshotv1.VolumeSnapshot{cut("a", ago(time.Hour))}, []string{"a"}},
		"no cut told":   {"the driver does not tell when it cuts, which is stored as the epoch: the object's time stands for it", []*snapshotv1.VolumeSnapshot{untold("b", ago(2*time.Minute)), untold("a", ago(time.Minute)), untold("c", ago(3*time.Minute))}, []string{"a"}},
		"not ready":     {"nothing is lost by it", []*snapshotv1.VolumeSnapshot{func() *snapshotv1.VolumeSnapshot { s := cut("a", ago(0)); s.Status.ReadyToUse = ptr(false); return s }()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{database(), data(nil), protects}
			for _, s := range tc.there {
				objects = append(objects, s)
			}
			h := webhook(t, objects...)
			var stay []string
			for _, s := range tc.there {
				answer, err := h.Validate(t.Context(), request(t, admissionv1.Delete, s, nil))
				if err != nil {
					t.Fatal(err)
				}
				if len(answer.Findings) > 0 {
					stay = append(stay, s.Name)
				}
			}
			if diff := cmp.Diff(tc.stay, stay); diff != "" {
				t.Errorf("%s: these stay (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

// TestLetOffByLabels: a label that an exemption picks lets a protected snapshot
// go, so it takes the right to override, which nobody has here.
func TestLetOffByLabels(t *testing.T) {
	exempt := map[string]string{"app": "legacy"}
	spec := func(action v1alpha1.Action, protect v1alpha1.Protection, rule v1alpha1.Rule) v1alpha1.StoragePolicySpec {
		return v1alpha1.StoragePolicySpec{
			Guardrails: &v1alpha1.Guardrails{Action: action, Deletion: &v1alpha1.DeletionRules{Protect: protect, Allow: v1alpha1.AllowRecentSnapshot}},
			Exemptions: []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: exempt}, Rules: []v1alpha1.Rule{rule}, Reason: "test", Until: metav1.NewTime(now.Add(time.Hour))}},
		}
	}
	for name, tc := range map[string]struct {
		why        string
		spec       v1alpha1.StoragePolicySpec
		from, to   map[string]string
		wantsRight bool
	}{
		"let off":        {"it could be deleted then", spec(v1alpha1.Deny, v1alpha1.ProtectWhenBound, v1alpha1.RuleDeletion), nil, exempt, true},
		"another label":  {"no exemption picks it", spec(v1alpha1.Deny, v1alpha1.ProtectWhenBound, v1alpha1.RuleDeletion), nil, map[string]string{"app": "web"}, false},
		"held again":     {"more is protected then", spec(v1alpha1.Deny, v1alpha1.ProtectWhenBound, v1alpha1.RuleDeletion), exempt, nil, false},
		"other rule":     {"the exemption is from another rule", spec(v1alpha1.Deny, v1alpha1.ProtectWhenBound, v1alpha1.RuleClaimMaxSize), nil, exempt, false},
		"audited":        {"nothing is refused either way", spec(v1alpha1.Audit, v1alpha1.ProtectWhenBound, v1alpha1.RuleDeletion), nil, exempt, false},
		"protects never": {"there is nothing to let off", spec(v1alpha1.Deny, v1alpha1.ProtectNever, v1alpha1.RuleDeletion), nil, exempt, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := webhook(t, database(), data(nil), policyOf(tc.spec))
			old, after := cut("a", now), cut("a", now)
			old.Labels, after.Labels = tc.from, tc.to
			answer, err := h.Validate(t.Context(), request(t, admissionv1.Update, old, after))
			if err != nil {
				t.Fatal(err)
			}
			if (answer.Forbidden != "") != tc.wantsRight {
				t.Errorf("%s: answered %q", tc.why, answer.Forbidden)
			}
		})
	}
}

// TestExemptSnapshotVouchesForNone: the newest snapshot may go since an exemption
// picks it, so it must not let the one before it go: both would be lost.
func TestExemptSnapshotVouchesForNone(t *testing.T) {
	p := policyOf(v1alpha1.StoragePolicySpec{
		Guardrails: &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectWhenBound, Allow: v1alpha1.AllowRecentSnapshot}},
		Exemptions: []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "scratch"}}, Reason: "tests", Until: metav1.NewTime(now.Add(time.Hour))}},
	})
	older, exempt := cut("older", now.Add(-2*time.Minute)), cut("exempt", now.Add(-time.Minute))
	exempt.Labels = map[string]string{"app": "scratch"}
	h := webhook(t, database(), data(nil), p, older, exempt)
	for s, want := range map[*snapshotv1.VolumeSnapshot]int{older: 1, exempt: 0} {
		answer, err := h.Validate(t.Context(), request(t, admissionv1.Delete, s, nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Findings) != want {
			t.Errorf("the deletion of %s has %d findings, want %d: %v", s.Name, len(answer.Findings), want, answer.Findings)
		}
	}
}

// TestClassOfStaticClaim: a claim without a class has its driver by its volume,
// and the driver's default class of snapshots is judged.
func TestClassOfStaticClaim(t *testing.T) {
	p := policyOf(v1alpha1.StoragePolicySpec{Guardrails: &v1alpha1.Guardrails{SnapshotClass: &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"}}})
	classOf := func(driver string) *snapshotv1.VolumeSnapshotClass {
		return &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: driver, Annotations: map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}},
			Driver:     driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		}
	}
	volume := func(source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
	}
	static := data(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr("") })
	for name, tc := range map[string]struct {
		there []client.Object
		want  int
	}{
		"its driver's default deletes": {[]client.Object{static, volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "a.example"}})}, 1},
		"another driver's does":        {[]client.Object{static, volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "b.example"}})}, 0},
		"no driver":                    {[]client.Object{static, volume(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})}, 0},
		"the volume is gone":           {[]client.Object{static}, 0},
	} {
		h := webhook(t, append(tc.there, database(), p, classOf("a.example"))...)
		s := cut("s", now)
		s.Status = nil
		answer, err := h.Validate(t.Context(), request(t, admissionv1.Create, nil, s))
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Findings) != tc.want {
			t.Errorf("%s: %d findings, want %d: %v", name, len(answer.Findings), tc.want, answer.Findings)
		}
	}
}
