package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
)

var now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func compiled(t *testing.T, name string, spec v1alpha1.StoragePolicySpec) *policy.Policy {
	t.Helper()
	p := &v1alpha1.StoragePolicy{Spec: spec}
	p.Name = name
	ready, errs := policy.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return ready
}

func guarded(g v1alpha1.Guardrails) v1alpha1.StoragePolicySpec {
	return v1alpha1.StoragePolicySpec{Guardrails: &g}
}

func orphaned(action v1alpha1.OrphanAction) v1alpha1.StoragePolicySpec {
	return v1alpha1.StoragePolicySpec{Orphans: &v1alpha1.PolicyOrphans{AfterSeconds: 600, Action: action}}
}

func size(s string) *resource.Quantity { q := resource.MustParse(s); return &q }

func TestReport(t *testing.T) {
	gives := func(class string) v1alpha1.StoragePolicySpec {
		return v1alpha1.StoragePolicySpec{Defaults: &v1alpha1.PolicyDefaults{StorageClassName: class}}
	}
	grows := func(to string) v1alpha1.StoragePolicySpec {
		return v1alpha1.StoragePolicySpec{Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse(to)}}
	}
	for name, tc := range map[string]struct {
		why          string
		spec, other  v1alpha1.StoragePolicySpec
		apart        bool // no claim is under both
		defaultClass string
		kind         string
		want         metav1.ConditionStatus
		says         string
	}{
		"ready":              {"a scan was made", guarded(v1alpha1.Guardrails{}), gives("a"), false, "", v1alpha1.ConditionReady, metav1.ConditionTrue, "7 claims"},
		"same priority":      {"which class is given is the names' to decide, and that is said", gives("a"), gives("b"), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, `"mine" acts`},
		"same class":         {"two that give the same do not conflict", gives("a"), gives("a"), false, "", v1alpha1.ConditionConflicting, metav1.ConditionFalse, ""},
		"nothing in common":  {"policies of other claims do not conflict", gives("a"), gives("b"), true, "", v1alpha1.ConditionConflicting, metav1.ConditionFalse, ""},
		"two expansions":     {"which one grows the claim is the names' to decide", grows("1Ti"), grows("2Ti"), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, `another expansion (as for claim ns/claim); "mine" acts`},
		"same expansion":     {"sizes are compared, not their texts", grows("1Ti"), grows("1024Gi"), false, "", v1alpha1.ConditionConflicting, metav1.ConditionFalse, ""},
		"orphans":            {"only one can act", orphaned(v1alpha1.DeleteOrphans), orphaned(v1alpha1.ReportOrphans), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, `otherwise of orphans (as for claim ns/claim); "mine" acts`},
		"the same orphans":   {"either may act", orphaned(v1alpha1.DeleteOrphans), orphaned(v1alpha1.DeleteOrphans), false, "", v1alpha1.ConditionConflicting, metav1.ConditionFalse, ""},
		"sizes":              {"no claim is at least 5 and at most 4", guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: size("5Gi")}}), guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: size("4Gi")}}), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, "claim.minSize is 5Gi, claim.maxSize is 4Gi"},
		"sizes, other way":   {"both policies say so", guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: size("4Gi")}}), guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: size("5Gi")}}), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, "claim.minSize is 5Gi"},
		"sizes that fit":     {"equal bounds leave one size", guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MinSize: size("4Gi")}}), guarded(v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxSize: size("4Gi")}}), false, "", v1alpha1.ConditionConflicting, metav1.ConditionFalse, ""},
		"classes":            {"no class is in both lists", guarded(v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Allowed: []string{"a", "b"}}}), guarded(v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Allowed: []string{"c"}}}), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, "no StorageClass"},
		"classes in common":  {"one is", guarded(v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Allowed: []string{"a", "b"}}}), guarded(v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{Allowed: []string{"b"}}}), false, "", v1alpha1.ConditionConflicting, metav1.ConditionFalse, ""},
		"binding modes":      {"a class has one", guarded(v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingImmediate}}), guarded(v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer}}), false, "", v1alpha1.ConditionConflicting, metav1.ConditionTrue, "volumeBindingMode"},
		"shadowed":           {"the API server's default comes first", gives("a"), gives("a"), false, "gp2", v1alpha1.ConditionDefaultShadowed, metav1.ConditionTrue, `"gp2"`},
		"nothing to shadow":  {"a policy without a default has none to lose", guarded(v1alpha1.Guardrails{}), gives("a"), false, "gp2", v1alpha1.ConditionDefaultShadowed, metav1.ConditionFalse, ""},
		"exemptions current": {"none has ended", v1alpha1.StoragePolicySpec{Exemptions: []v1alpha1.Exemption{{Until: metav1.NewTime(now.Add(time.Second))}}}, gives("a"), false, "", v1alpha1.ConditionExemptionsCurrent, metav1.ConditionTrue, ""},
		"an exemption's end": {"one has", v1alpha1.StoragePolicySpec{Exemptions: []v1alpha1.Exemption{{Until: metav1.NewTime(now)}}}, gives("a"), false, "", v1alpha1.ConditionExemptionsCurrent, metav1.ConditionFalse, "1 exemptions"},
	} {
		t.Run(name, func(t *testing.T) {
			mine, other := compiled(t, "mine", tc.spec), compiled(t, "other", tc.other)
			r := &Result{MatchedClaims: 7, Overlaps: map[string]string{"other": "ns/claim"}}
			if tc.apart {
				r.Overlaps = nil
			}
			status := report(v1alpha1.StoragePolicyStatus{}, 3, mine, nil, r, cluster{now: now, defaultClass: tc.defaultClass, policies: map[string]*policy.Policy{"mine": mine, "other": other}})
			c := meta.FindStatusCondition(status.Conditions, tc.kind)
			if c == nil || c.Status != tc.want || !strings.Contains(c.Message, tc.says) || c.ObservedGeneration != 3 {
				t.Errorf("%s: condition %+v, want %s with %q", tc.why, c, tc.want, tc.says)
			}
			if len(status.Conditions) != 4 {
				t.Errorf("%d conditions, every one is there from the first pass", len(status.Conditions))
			}
		})
	}
}

func TestReportOfBrokenPolicy(t *testing.T) {
	bad := &v1alpha1.StoragePolicy{Spec: v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{
		ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}},
	}}}
	_, errs := policy.Compile(bad)
	status := report(v1alpha1.StoragePolicyStatus{}, 1, nil, errs, nil, cluster{now: now})
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "spec.match.claimSelector") {
		t.Errorf("condition %+v, want False naming the field", c)
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionConflicting); c == nil || c.Status != metav1.ConditionUnknown {
		t.Errorf("condition %+v: what was not judged is unknown", c)
	}
}

func TestReportListsFirstFifty(t *testing.T) {
	r := &Result{Broken: map[Break]int32{}}
	for i := range 51 {
		r.add(violation{kind: "PersistentVolumeClaim", namespace: "db", name: fmt.Sprintf("data-%02d", 50-i)})
	}
	mine := compiled(t, "mine", guarded(v1alpha1.Guardrails{}))
	status := report(v1alpha1.StoragePolicyStatus{}, 1, mine, nil, r, cluster{now: now})
	if len(status.Violations) != 50 || status.ViolationCount != 51 {
		t.Errorf("%d listed of %d, want 50 of 51", len(status.Violations), status.ViolationCount)
	}
	for i, v := range status.Violations {
		if want := fmt.Sprintf("data-%02d", i); v.Name != want {
			t.Fatalf("violation %d is of %s, want %s", i, v.Name, want)
		}
	}
}

// TestContradictionIsToldAlike: a text that is another each time would be
// written into the status each minute.
func TestContradictionIsToldAlike(t *testing.T) {
	a := &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingImmediate, ReclaimPolicy: "Retain"}}
	b := &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{VolumeBindingMode: storagev1.VolumeBindingWaitForFirstConsumer, ReclaimPolicy: "Delete"}}
	first := contradiction(a, b)
	for range 100 {
		if again := contradiction(b, a); again != first {
			t.Fatalf("told %q, then %q", first, again)
		}
	}
}

// TestStatusIsWritten: whatever a policy says, its status is one that the API server
// takes, and that reads as it was written: else it would be written each minute.
func TestStatusIsWritten(t *testing.T) {
	var values []string
	for i := range 32 {
		values = append(values, fmt.Sprint(i)+strings.Repeat("\u00fc", 1000))
	}
	rules := &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "tags", Values: values}}}
	p := compiled(t, "mine", guarded(v1alpha1.Guardrails{StorageClass: rules}))
	r := &Result{Broken: map[Break]int32{}}
	for i := range maxViolations {
		class := &storagev1.StorageClass{Provisioner: "ebs.csi.aws.com"}
		class.Name = fmt.Sprintf("class-%d", i)
		for _, f := range p.Findings(storageclass.Breaches(rules, class, 0), nil, policy.Namespace{}, now) {
			r.add(violation{kind: "StorageClass", name: class.Name, Finding: f})
		}
	}
	bad := field.ErrorList{field.Invalid(field.NewPath("spec"), "x"+strings.Repeat("\u00fc", 1000), "no selector")}
	for _, status := range []v1alpha1.StoragePolicyStatus{
		report(v1alpha1.StoragePolicyStatus{}, 1, p, nil, r, cluster{now: now}),
		report(v1alpha1.StoragePolicyStatus{}, 1, nil, bad, nil, cluster{now: now}),
	} {
		raw, err := json.Marshal(status)
		if err != nil || len(raw) > 1<<20 {
			t.Errorf("a status of %d bytes, want what etcd takes; %v", len(raw), err)
		}
		var stored v1alpha1.StoragePolicyStatus
		if err := json.Unmarshal(raw, &stored); err != nil || !equality.Semantic.DeepEqual(stored, status) {
			t.Errorf("the status reads otherwise than it was written; %v", err)
		}
	}
}
