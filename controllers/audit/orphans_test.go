package audit

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestOrphansAreListedOnce: each under the policy that acts on it, the first by
// name with what there is to say of it, all of them counted.
func TestOrphansAreListedOnce(t *testing.T) {
	of := func(name string, priority int32, change func(*v1alpha1.StoragePolicySpec)) *policy.Policy {
		spec := orphaned(v1alpha1.ReportOrphans)
		spec.Priority = priority
		change(&spec)
		return compiled(t, name, spec)
	}
	policies := []*policy.Policy{ // in no order
		of("all", 0, func(*v1alpha1.StoragePolicySpec) {}),
		of("mute", 9, func(s *v1alpha1.StoragePolicySpec) { s.Orphans, s.Guardrails = nil, &v1alpha1.Guardrails{} }),
		of("some", 5, func(s *v1alpha1.StoragePolicySpec) {
			s.Match.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"i": "1"}}
		}),
		of("some-too", 5, func(s *v1alpha1.StoragePolicySpec) {
			s.Match.ClaimSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"i": "1"}}
		}),
	}
	claims := staticClaims(120, 2)
	for i := range claims {
		c := &claims[len(claims)-1-i] // the last ones first
		c.UID = types.UID(c.Name)
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *size("2Gi")}
		if i < 110 {
			c.Annotations = map[string]string{v1alpha1.AnnotationOrphanedSince: now.Add(-time.Hour).Format(time.RFC3339), v1alpha1.AnnotationSetName: "pg"}
		}
	}
	claims[100].DeletionTimestamp = &metav1.Time{Time: now}
	w := &world.World{Cache: anything{}, Live: anything{}, Clock: clocktesting.NewFakePassiveClock(now)}
	results, err := Scan(t.Context(), w, policies, Observed{Claims: claims, Told: func(uid types.UID) string { return "of " + string(uid) }})
	if err != nil {
		t.Fatal(err)
	}
	if results["mute"].Orphans != nil {
		t.Errorf("a policy that says nothing of orphans reports %+v", results["mute"].Orphans)
	}
	if r := results["some-too"].Orphans; r == nil || r.Count != 0 || r.TotalSize != nil {
		t.Errorf("a policy that comes second reports %+v", r)
	}
	for name, want := range map[string]struct {
		count int32
		total string
		first string
	}{"all": {54, "108Gi", "data-0010"}, "some": {55, "110Gi", "data-0011"}} {
		r := results[name].Orphans
		if r.Count != want.count || r.TotalSize.String() != want.total || len(r.Claims) != maxOrphans {
			t.Errorf("%s: %d orphans of %s, %d listed; want %d of %s", name, r.Count, r.TotalSize, len(r.Claims), want.count, want.total)
			continue
		}
		if c := r.Claims[0]; c.Name != want.first || c.StatefulSet != "pg" || !c.Since.Time.Equal(now.Add(-time.Hour)) || c.Size.String() != "2Gi" || c.Message != "of "+want.first {
			t.Errorf("%s: the first is %+v", name, c)
		}
	}
	long := strings.Repeat("ü", maxMessage)
	claims[0].Annotations = map[string]string{v1alpha1.AnnotationOrphanedSince: "0001-01-01T00:00:00Z"} // no status could hold it
	if results, err = Scan(t.Context(), w, policies, Observed{Claims: claims, Told: func(types.UID) string { return "x" + long }}); err != nil {
		t.Fatal(err)
	}
	for _, c := range results["all"].Orphans.Claims {
		if c.Since.IsZero() || !utf8.ValidString(c.Message) {
			t.Fatalf("listed is %+v, which is not what would be read back", c)
		}
	}
}
