package expansion

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// TestSpent: who asks by hand has what the budget allows, without its reserve.
func TestSpent(t *testing.T) {
	now := time.Date(2027, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(hours ...int) string {
		r := &Record{}
		for _, h := range hours {
			r = r.with(Modification{At: now.Add(-time.Duration(h) * time.Hour), ToBytes: 1}, 1, "")
		}
		return r.String()
	}
	for name, tc := range map[string]struct {
		why         string
		provisioner string
		record      string
		want        string
	}{
		"no record":     {"nothing was modified", "ebs.csi.aws.com", "", ""},
		"two":           {"of EBS's four, less one in reserve, one is left", "ebs.csi.aws.com", at(20, 10), ""},
		"three":         {"the fourth is the reserve", "ebs.csi.aws.com", at(20, 10, 5), "growth goes on at 2027-01-02T16:00:00Z"},
		"long ago":      {"the window has moved on", "ebs.csi.aws.com", at(30, 26, 25), ""},
		"other drivers": {"have no budget unless the policy says", "other.csi.example.com", at(4, 3, 2, 1), ""},
		"unreadable":    {"what was done is not known", "ebs.csi.aws.com", "x", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.PersistentVolumeClaim{}
			if tc.record != "" {
				c.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationModifications: tc.record}}
			}
			got := Spent(now, &policy.Policy{Name: "p", Expansion: &v1alpha1.PolicyExpansion{}}, tc.provisioner, c)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}
