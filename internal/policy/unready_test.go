package policy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

func TestGrowthInDoubt(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
	expansion := &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("10Gi")}
	sizes := func(action v1alpha1.Action, overrides ...v1alpha1.RuleOverride) *v1alpha1.Guardrails {
		most := resource.MustParse("10Gi")
		return &v1alpha1.Guardrails{Action: action, Overrides: overrides, Claim: &v1alpha1.ClaimRules{MaxSize: &most}}
	}
	growing := &Policy{Name: "m", Priority: 5, Expansion: expansion}
	claim := Claim{Namespace: Namespace{Name: "db", Labels: map[string]string{"tier": "db"}}, Labels: map[string]string{"app": "pg"}, ClassName: "gp3", Provisioner: "ebs.csi.aws.com"}
	for name, tc := range map[string]struct {
		why      string
		policy   string
		priority int32
		spec     v1alpha1.StoragePolicySpec
		growing  *Policy
		want     bool
	}{
		"higher":               {"it would be the one that acts", "z", 6, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Expansion: expansion}, growing, true},
		"lower":                {"it would not act, valid or not", "a", 4, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Expansion: expansion}, growing, false},
		"tie, first by name":   {"it would be the one that acts", "a", 5, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Expansion: expansion}, growing, true},
		"tie, later by name":   {"it would not act", "z", 5, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Expansion: expansion}, growing, false},
		"the only one":         {"it may bound what is declared", "a", 0, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Expansion: expansion}, nil, true},
		"namespace selector":   {"that cannot be read either", "z", 6, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{NamespaceSelector: bad}, Expansion: expansion}, growing, true},
		"an exemption":         {"it holds nothing, though it is known whom it matches", "z", 6, v1alpha1.StoragePolicySpec{Expansion: expansion, Exemptions: []v1alpha1.Exemption{{Selector: bad}}}, growing, true},
		"no expansion":         {"it has no say in growth", "z", 6, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}}, growing, false},
		"other namespace":      {"the rest of it is known, and does not match", "z", 6, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{NamespaceSelector: with("tier=web"), ClaimSelector: bad}, Expansion: expansion}, growing, false},
		"other labels":         {"likewise", "z", 6, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{NamespaceSelector: bad, ClaimSelector: with("app=web")}, Expansion: expansion}, growing, false},
		"other class":          {"likewise", "z", 6, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad, StorageClassNames: []string{"io2"}}, Expansion: expansion}, growing, false},
		"guardrails":           {"those of all policies hold, whatever their priority", "a", -9, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Guardrails: sizes("")}, growing, true},
		"guardrails, growth":   {"likewise", "a", -9, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Guardrails: &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{MaxGrowthPercent: 10}}}, growing, true},
		"guardrails, IOPS":     {"which some classes give by the GiB", "a", -9, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Guardrails: &v1alpha1.Guardrails{StorageClass: &v1alpha1.StorageClassRules{MaxIOPS: 4000}}}, growing, true},
		"guardrails that warn": {"they refuse nothing", "a", -9, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Guardrails: sizes(v1alpha1.Warn)}, growing, false},
		"one rule warns":       {"likewise", "a", -9, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Guardrails: sizes(v1alpha1.Deny, v1alpha1.RuleOverride{Rule: v1alpha1.RuleClaimMaxSize, Action: v1alpha1.Warn})}, growing, false},
		"other guardrails":     {"they say nothing of sizes", "a", -9, v1alpha1.StoragePolicySpec{Match: v1alpha1.PolicyMatch{ClaimSelector: bad}, Guardrails: &v1alpha1.Guardrails{Deletion: &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways}}}, growing, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: tc.policy}, Spec: tc.spec}
			p.Spec.Priority = tc.priority
			ready, unready := Make(p)
			if ready != nil || unready == nil {
				t.Fatalf("it can be made ready: %+v", ready)
			}
			got := GrowthInDoubt([]*Unready{unready}, tc.growing, claim)
			if (got != "") != tc.want {
				t.Errorf("%s: %q, want a doubt: %v", tc.why, got, tc.want)
			}
			if tc.want && (!strings.Contains(got, "StoragePolicy \""+tc.policy+"\"") || !strings.Contains(got, "elector")) {
				t.Errorf("%q does not say which policy and which selector", got)
			}
		})
	}
	if ready, unready := Make(&v1alpha1.StoragePolicy{}); ready == nil || unready != nil {
		t.Errorf("a policy that is valid is %+v, %+v", ready, unready)
	}
}
