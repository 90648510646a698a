package schedule

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

func TestCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		spec v1alpha1.SnapshotScheduleSpec
		says []string // one for each error; none: accepted
	}{
		"plain":           {"an hourly schedule of everything", v1alpha1.SnapshotScheduleSpec{Schedule: "0 * * * *"}, nil},
		"template":        {"labels of one's own", v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Labels: map[string]string{"team": "db"}, Annotations: map[string]string{"example.com/why": "any text at all"}}}, nil},
		"C02 prefix":      {"the zone has a field", v1alpha1.SnapshotScheduleSpec{Schedule: "TZ=UTC 0 * * * *"}, []string{`spec.schedule: Invalid value: "TZ=UTC 0 * * * *": begins with TZ=`}},
		"C02 30 February": {"it would never run", v1alpha1.SnapshotScheduleSpec{Schedule: "0 0 30 2 *"}, []string{"spec.schedule: Invalid value: \"0 0 30 2 *\": day of month \"30\""}},
		"C02 zone":        {"a zone that nobody knows", v1alpha1.SnapshotScheduleSpec{Schedule: "0 * * * *", TimeZone: "Mars/Olympus"}, []string{`spec.timeZone: Invalid value: "Mars/Olympus": is not a known time zone`}},
		"selector": {"the API server does not look into it", v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Target: v1alpha1.SnapshotTarget{
			ClaimSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}},
		}}, []string{"spec.target.claimSelector"}},
		"bad labels":      {"no copy could be made with them", v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Labels: map[string]string{"a": "no value"}}}, []string{"spec.template.labels"}},
		"bad annotations": {"nor with these", v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Annotations: map[string]string{"no key": ""}}}, []string{"spec.template.annotations"}},
		"our labels":      {"a copy of another schedule", v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Labels: map[string]string{v1alpha1.LabelSchedule: "other"}}}, []string{`spec.template.labels: Invalid value: "holdfast.dev/schedule": keys under holdfast.dev/ are Holdfast's own`}},
		"our annotations": {"copies that are held for ever", v1alpha1.SnapshotScheduleSpec{Schedule: "@daily", Template: v1alpha1.SnapshotTemplate{Annotations: map[string]string{v1alpha1.AnnotationHold: "x"}}}, []string{`spec.template.annotations: Invalid value: "holdfast.dev/hold"`}},
		"several at once": {"all is said at once", v1alpha1.SnapshotScheduleSpec{Schedule: "60 * * * *", Template: v1alpha1.SnapshotTemplate{Labels: map[string]string{"a": "no value", "holdfast.dev/x": ""}}}, []string{"spec.schedule", "spec.template.labels", "spec.template.labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			ready, errs := Compile(&tc.spec)
			if len(errs) != len(tc.says) || (ready == nil) != (len(errs) > 0) {
				t.Fatalf("%s: %v, want %d errors", tc.why, errs, len(tc.says))
			}
			for i, says := range tc.says {
				if !strings.Contains(errs[i].Error(), says) {
					t.Errorf("%s: %v, want it to say %q", tc.why, errs[i], says)
				}
			}
		})
	}
}
