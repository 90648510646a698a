package stamp

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func set(name, template, app string) appsv1.StatefulSet {
	s := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: template}}}
	return s
}

func TestOwners(t *testing.T) {
	dying := set("pg", "data", "pg")
	dying.DeletionTimestamp = &metav1.Time{}
	everything := set("pg", "data", "pg")
	everything.Spec.Selector = &metav1.LabelSelector{}
	for name, tc := range map[string]struct {
		why   string
		claim string
		app   string
		sets  []appsv1.StatefulSet
		want  []string
	}{
		"its own":          {"name and labels fit", "data-pg-12", "pg", []appsv1.StatefulSet{set("pg", "data", "pg"), set("pg-1", "data", "pg-1")}, []string{"pg data 12"}},
		"other labels":     {"a claim of that name that somebody made by hand", "data-pg-0", "web", []appsv1.StatefulSet{set("pg", "data", "pg")}, nil},
		"two readings":     {"labels tell which", "data-a-b-0", "b", []appsv1.StatefulSet{set("a-b", "data", "a-b"), set("b", "data-a", "b")}, []string{"b data-a 0"}},
		"two, same labels": {"nothing tells which", "data-a-b-0", "x", []appsv1.StatefulSet{set("a-b", "data", "x"), set("b", "data-a", "x")}, []string{"a-b data 0", "b data-a 0"}},
		"no ordinal":       {"exactly an ordinal", "data-pg-", "pg", []appsv1.StatefulSet{set("pg", "data", "pg")}, nil},
		"leading zero":     {"as Kubernetes writes it", "data-pg-01", "pg", []appsv1.StatefulSet{set("pg", "data", "pg")}, nil},
		"signed":           {"likewise", "data-pg-+1", "pg", []appsv1.StatefulSet{set("pg", "data", "pg")}, nil},
		"longer name":      {"a set whose name goes on", "data-pg-replica-0", "pg", []appsv1.StatefulSet{set("pg", "data", "pg")}, nil},
		"too large":        {"no ordinal is that large", "data-pg-99999999999", "pg", []appsv1.StatefulSet{set("pg", "data", "pg")}, nil},
		"dying set":        {"a set that goes stamps nothing more", "data-pg-0", "pg", []appsv1.StatefulSet{dying}, nil},
		"empty selector":   {"a selector of everything tells nothing", "data-pg-0", "pg", []appsv1.StatefulSet{everything}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: tc.claim, Labels: map[string]string{"app": tc.app}}}
			var got []string
			for _, s := range Owners(claim, tc.sets) {
				a := s.annotations()
				got = append(got, a["holdfast.dev/statefulset-name"]+" "+a["holdfast.dev/statefulset-template"]+" "+a["holdfast.dev/statefulset-ordinal"])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}
