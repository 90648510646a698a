package audit

import (
	"context"
	"fmt"
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// anything has every object by its name.
type anything struct{ client.Reader }

func (anything) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetName(key.Name)
	return nil
}

// scanned scans claims by policies, all of which they break by their size and mode.
func scanned(t testing.TB, policies []*policy.Policy, claims []corev1.PersistentVolumeClaim) map[string]*Result {
	t.Helper()
	w := &world.World{Cache: anything{}, Live: anything{}, Clock: clocktesting.NewFakePassiveClock(now)}
	results, err := Scan(t.Context(), w, policies, Observed{Claims: claims})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// staticClaims are n claims with the label i=<number modulo kinds>.
func staticClaims(n, kinds int) []corev1.PersistentVolumeClaim {
	static := ""
	claims := make([]corev1.PersistentVolumeClaim, n)
	for i := range claims {
		c := &claims[i]
		c.Namespace, c.Name, c.Labels = "db", fmt.Sprintf("data-%04d", i), map[string]string{"i": fmt.Sprint(i % kinds)}
		c.Spec = corev1.PersistentVolumeClaimSpec{StorageClassName: &static, VolumeName: "v"}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *size("2Gi")}
	}
	return claims
}

func broken(t testing.TB, name string, selector *metav1.LabelSelector) *policy.Policy {
	t.Helper()
	p := &v1alpha1.StoragePolicy{Spec: guarded(v1alpha1.Guardrails{
		Overrides: []v1alpha1.RuleOverride{{Rule: v1alpha1.RuleClaimVolumeModes, Action: v1alpha1.Audit}},
		Claim:     &v1alpha1.ClaimRules{MaxSize: size("1Gi"), VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock}},
	})}
	p.Name, p.Spec.Match.ClaimSelector = name, selector
	ready, errs := policy.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return ready
}

// TestScanKeepsFew: whatever breaks the rules, a scan counts all of it and keeps
// what the status lists.
func TestScanKeepsFew(t *testing.T) {
	const claims, policies = 1000, 20
	var all []*policy.Policy
	for i := range policies {
		all = append(all, broken(t, fmt.Sprint("policy-", i), nil))
	}
	seen := staticClaims(claims, 1)
	slices.Reverse(seen)
	for name, r := range scanned(t, all, seen) {
		if len(r.worst) != maxViolations || cap(r.worst) > 2*maxViolations {
			t.Errorf("%s keeps %d violations in room for %d, want %d", name, len(r.worst), cap(r.worst), maxViolations)
		}
		deny, audit := r.Broken[Break{v1alpha1.RuleClaimMaxSize, v1alpha1.Deny}], r.Broken[Break{v1alpha1.RuleClaimVolumeModes, v1alpha1.Audit}]
		if r.Count() != 2*claims || deny != claims || audit != claims || r.MatchedClaims != claims {
			t.Errorf("%s: %d violations of %d claims, %d denied, %d audited; want %d, %d, %d, %d", name, r.Count(), r.MatchedClaims, deny, audit, 2*claims, claims, claims, claims)
		}
		listed := r.Violations()
		if first, last := listed[0].Name, listed[maxViolations-1].Name; first != "data-0000" || last != "data-0024" {
			t.Errorf("%s lists %s to %s, want the first 25 claims, two violations each", name, first, last)
		}
		if len(r.Overlaps) != policies-1 {
			t.Errorf("%s overlaps with %d policies, want all others: %d", name, len(r.Overlaps), policies-1)
		}
	}
}

// TestOverlaps: policies overlap where a claim is under both, and the claim that
// is named for it is the first by name, in whatever order they come.
func TestOverlaps(t *testing.T) {
	only := func(i ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "i", Operator: metav1.LabelSelectorOpIn, Values: i}}}
	}
	policies := []*policy.Policy{broken(t, "a", only("0", "1")), broken(t, "b", only("1", "2")), broken(t, "c", only("2")), broken(t, "none", only("9"))}
	claims := staticClaims(30, 3)
	want := map[string]map[string]string{
		"a": {"b": "db/data-0001"}, "b": {"a": "db/data-0001", "c": "db/data-0002"}, "c": {"b": "db/data-0002"}, "none": {},
	}
	for range 2 {
		for name, r := range scanned(t, policies, claims) {
			if fmt.Sprint(r.Overlaps) != fmt.Sprint(want[name]) {
				t.Errorf("%s overlaps %v, want %v", name, r.Overlaps, want[name])
			}
		}
		slices.Reverse(claims)
	}
}

// BenchmarkScan is a cluster of the size that the manager is made for, all of
// whose claims break two rules of 300 policies.
func BenchmarkScan(b *testing.B) {
	var all []*policy.Policy
	for i := range 300 {
		all = append(all, broken(b, fmt.Sprint("policy-", i), nil))
	}
	claims := staticClaims(5000, 1)
	for b.Loop() {
		scanned(b, all, claims)
	}
}

// TestScanJudgesSnapshots: what exists is judged by the rule of admission, a
// snapshot by the policies of its claim.
func TestScanJudgesSnapshots(t *testing.T) {
	p := &v1alpha1.StoragePolicy{Spec: guarded(v1alpha1.Guardrails{SnapshotClass: &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"}})}
	p.Name, p.Spec.Match.ClaimSelector = "databases", &metav1.LabelSelector{MatchLabels: map[string]string{"i": "0"}}
	ready, errs := policy.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	of := func(name, claim string) snapshotv1.VolumeSnapshot {
		s := snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name}}
		class := "copies" // whose deletionPolicy is not Retain
		s.Spec.VolumeSnapshotClassName, s.Spec.Source.PersistentVolumeClaimName = &class, &claim
		return s
	}
	going := of("going", "data-0000")
	going.DeletionTimestamp = &metav1.Time{Time: now}
	w := &world.World{Cache: anything{}, Live: anything{}, Clock: clocktesting.NewFakePassiveClock(now)}
	results, err := Scan(t.Context(), w, []*policy.Policy{ready}, Observed{
		Claims:    staticClaims(2, 2),
		Snapshots: []snapshotv1.VolumeSnapshot{of("of-a-database", "data-0000"), of("of-another", "data-0001"), of("of-nobody", "gone"), going},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range results["databases"].Violations() {
		got = append(got, fmt.Sprintf("%s %s/%s %s", v.Kind, v.Namespace, v.Name, v.Rule))
	}
	if want := []string{"VolumeSnapshot db/of-a-database snapshotClass.deletionPolicy"}; !slices.Equal(got, want) {
		t.Errorf("violations %q, want %q", got, want)
	}
}

// TestScanJudgesSets: living sets are judged by the rules of admission: the set by
// its own, and its templates by those of the claims that its next Pods would have,
// which nobody is refused here either.
func TestScanJudgesSets(t *testing.T) {
	p := &v1alpha1.StoragePolicy{Spec: guarded(v1alpha1.Guardrails{
		Claim:       &v1alpha1.ClaimRules{MaxSize: size("1Gi")},
		StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, MinTerminationGracePeriodSeconds: 30},
	})}
	p.Name, p.Spec.Match.ClaimSelector = "databases", &metav1.LabelSelector{MatchLabels: map[string]string{"i": "0"}}
	ready, errs := policy.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	set := func(name, label, asks string, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType) appsv1.StatefulSet {
		template := staticClaims(1, 1)[0]
		template.Name, template.Labels = "data", map[string]string{"i": label}
		template.Spec.Resources.Requests[corev1.ResourceStorage] = *size(asks)
		s := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name}}
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{template}
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: whenDeleted}
		return s
	}
	w := &world.World{Cache: anything{}, Live: anything{}, Clock: clocktesting.NewFakePassiveClock(now)}
	results, err := Scan(t.Context(), w, []*policy.Policy{ready}, Observed{Sets: []appsv1.StatefulSet{
		set("pg", "0", "2Gi", appsv1.DeletePersistentVolumeClaimRetentionPolicyType), set("small", "0", "1Gi", appsv1.RetainPersistentVolumeClaimRetentionPolicyType),
		set("cache", "1", "2Gi", appsv1.DeletePersistentVolumeClaimRetentionPolicyType),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range results["databases"].Violations() {
		got = append(got, fmt.Sprintf("%s %s/%s %s %s", v.Kind, v.Namespace, v.Name, v.Rule, v.Action))
	}
	if want := []string{"StatefulSet db/pg claim.maxSize Warn", "StatefulSet db/pg statefulSet.whenDeleted Deny"}; !slices.Equal(got, want) {
		t.Errorf("violations %q, want %q", got, want)
	}
}

// TestScanEndsWithItsContext: a manager that is stopped does not finish a scan of
// thousands of claims first.
func TestScanEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w := &world.World{Cache: anything{}, Live: anything{}, Clock: clocktesting.NewFakePassiveClock(now)}
	if _, err := Scan(ctx, w, []*policy.Policy{broken(t, "p", nil)}, Observed{Claims: staticClaims(1, 1)}); err == nil {
		t.Error("a scan goes on after its context has ended")
	}
}
