package storagepolicy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// TestGrowthWarnings: an expansion that the policy's own guardrails refuse is
// warned of when it is written, and not found out when a disk is full.
func TestGrowthWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		rules  v1alpha1.ClaimRules
		action v1alpha1.Action
		want   []string
	}{
		"room":           {v1alpha1.ClaimRules{MaxSize: ptr.To(resource.MustParse("1024Gi")), MaxGrowthPercent: 20}, v1alpha1.Deny, nil},
		"too small":      {v1alpha1.ClaimRules{MaxSize: ptr.To(resource.MustParse("1023Gi"))}, v1alpha1.Deny, []string{"spec.expansion.maxSize: 1Ti is above guardrails.claim.maxSize"}},
		"too slow":       {v1alpha1.ClaimRules{MaxGrowthPercent: 19}, v1alpha1.Deny, []string{"spec.expansion.step.percent: 20"}},
		"only warned of": {v1alpha1.ClaimRules{MaxSize: ptr.To(resource.MustParse("1Gi")), MaxGrowthPercent: 1}, v1alpha1.Warn, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := policy.Compile(&v1alpha1.StoragePolicy{Spec: v1alpha1.StoragePolicySpec{
				Guardrails: &v1alpha1.Guardrails{Action: tc.action, Claim: &tc.rules},
				Expansion:  &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("1Ti"), Step: v1alpha1.ExpansionStep{Percent: 20}},
			}})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			got := growthWarnings(p)
			if len(got) != len(tc.want) {
				t.Fatalf("warnings %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tc.want[i]) {
					t.Errorf("warning %q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
}
