package statefulset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestFindingsByLabels: a set is under the policies that its claims will be
// under, by the labels that they will have.
func TestFindingsByLabels(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	app := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	p, errs := policy.Compile(&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}, Spec: v1alpha1.StoragePolicySpec{
		Match: v1alpha1.PolicyMatch{ClaimSelector: app("pg")},
		Guardrails: &v1alpha1.Guardrails{
			StatefulSet: &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims},
			Claim:       &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("1Gi"))},
		},
		Exemptions: []v1alpha1.Exemption{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"size": "any"}}, Reason: "test", Until: metav1.NewTime(now.Add(time.Hour))}},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	reader := fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db"}}).Build()
	w := &world.World{Cache: reader, Live: reader, Clock: clocktesting.NewFakePassiveClock(now)}
	both := []string{"statefulSet.whenDeleted", "claim.maxSize"}
	for name, tc := range map[string]struct {
		why      string
		selector *metav1.LabelSelector
		labels   map[string]string // of the template
		want     []string
	}{
		"neither":                   {"claims without the label are not meant", app("web"), nil, nil},
		"the selector's":            {"the StatefulSet controller puts them on each claim", app("pg"), nil, both},
		"the selector's over other": {"its labels win", app("pg"), map[string]string{"app": "web"}, both},
		"the template's over none":  {"an expression is no label", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}, map[string]string{"app": "pg"}, both},
		"other selector":            {"a claim would not keep the template's label", app("web"), map[string]string{"app": "pg"}, nil},
		"exempt by the selector":    {"its labels count for exemptions too", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg", "size": "any"}}, nil, both[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(func(s *appsv1.StatefulSet) {
				s.Namespace, s.Name, s.Spec.Selector = "db", "pg", tc.selector
				s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete"}
				claim := &s.Spec.VolumeClaimTemplates[0]
				claim.Name, claim.Labels = "data", tc.labels
				claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
			})
			before := s.DeepCopy()
			found, err := Findings(t.Context(), w, []*policy.Policy{p}, s)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, string(f.Rule))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: rules (-want +got)\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(before, s); diff != "" {
				t.Errorf("the set was changed (-was +is)\n%s", diff)
			}
		})
	}
}
