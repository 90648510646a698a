package statefulset

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

func ptr[T any](v T) *T { return &v }

func set(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 1)}}
	if change != nil {
		change(s)
	}
	return s
}

func TestBreaches(t *testing.T) {
	retain := &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, WhenScaled: v1alpha1.RetainClaims}
	for name, tc := range map[string]struct {
		why      string
		rules    *v1alpha1.StatefulSetRules
		set      *appsv1.StatefulSet
		budgeted bool
		want     []string // "rule found"
	}{
		"no rules":           {"no rules, no breach", nil, set(nil), false, nil},
		"no templates":       {"a set without volumes of its own is not judged", &v1alpha1.StatefulSetRules{PodDisruptionBudget: v1alpha1.Required}, &appsv1.StatefulSet{}, false, nil},
		"retains by default": {"absent is Retain", retain, set(nil), false, nil},
		"deletes": {"both halves are judged", retain, set(func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Delete"}
		}), false, []string{"statefulSet.whenDeleted Delete", "statefulSet.whenScaled Delete"}},
		"half said": {"the other half is Retain", retain, set(func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: "Delete"}
		}), false, []string{"statefulSet.whenScaled Delete"}},
		"grace by default": {"absent is 30 s", &v1alpha1.StatefulSetRules{MinTerminationGracePeriodSeconds: 31}, set(nil), false, []string{"statefulSet.minTerminationGracePeriodSeconds 30"}},
		"enough grace":     {"the bound itself is allowed", &v1alpha1.StatefulSetRules{MinTerminationGracePeriodSeconds: 60}, set(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr[int64](60) }), false, nil},
		"no grace":         {"0 is said", &v1alpha1.StatefulSetRules{MinTerminationGracePeriodSeconds: 1}, set(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr[int64](0) }), false, []string{"statefulSet.minTerminationGracePeriodSeconds 0"}},
		"no budget":        {"a budget is wanted", &v1alpha1.StatefulSetRules{PodDisruptionBudget: v1alpha1.Required}, set(nil), false, []string{"statefulSet.podDisruptionBudget not there"}},
		"budget":           {"and is there", &v1alpha1.StatefulSetRules{PodDisruptionBudget: v1alpha1.Required}, set(nil), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, b := range Breaches(tc.rules, Subject{Set: tc.set, Budgeted: tc.budgeted}) {
				got = append(got, string(b.Rule)+" "+b.Found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestSoften(t *testing.T) {
	denied := func(r v1alpha1.Rule) policy.Finding {
		return policy.Finding{Breach: policy.Breach{Rule: r}, Action: v1alpha1.Deny}
	}
	got := Soften([]policy.Finding{denied(v1alpha1.RuleSetDisruptionBudget), denied(v1alpha1.RuleSetWhenDeleted)}, false)
	if got[0].Action != v1alpha1.Warn || got[1].Action != v1alpha1.Deny {
		t.Errorf("the budget rule only warns, others keep their action: %+v", got)
	}
	got = Soften([]policy.Finding{denied(v1alpha1.RuleClaimMaxSize), {Action: v1alpha1.Audit}}, true)
	if got[0].Action != v1alpha1.Warn || got[1].Action != v1alpha1.Audit {
		t.Errorf("a template is warned of what its claims would be denied, no more: %+v", got)
	}
}

func TestLosing(t *testing.T) {
	sized := func(start, replicas int32) *appsv1.StatefulSet {
		return set(func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.Ordinals = &replicas, &appsv1.StatefulSetOrdinals{Start: start}
		})
	}
	for name, tc := range map[string]struct {
		why      string
		old, now *appsv1.StatefulSet
		want     []int32
	}{
		"down":        {"the highest go", sized(0, 3), sized(0, 1), []int32{1, 2}},
		"up":          {"none goes", sized(0, 1), sized(0, 3), nil},
		"to nothing":  {"all go", sized(5, 2), sized(5, 0), []int32{5, 6}},
		"start moves": {"the lowest go, though the number stays", sized(0, 3), sized(1, 3), []int32{0}},
		"largest":     {"a number with digits too many, taken back", sized(6, math.MaxInt32), sized(6, 1), []int32{7, math.MaxInt32 - 1, math.MaxInt32}},
		"default":     {"absent is one replica from 0", set(nil), sized(0, 0), []int32{0}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int32
			losing := Losing(tc.old, tc.now)
			for _, ordinal := range []int32{0, 1, 2, 3, 4, 5, 6, 7, math.MaxInt32 - 1, math.MaxInt32} {
				if losing(ordinal) {
					got = append(got, ordinal)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestDoomed(t *testing.T) {
	claims := func(change func(map[string]*corev1.PersistentVolumeClaim)) []corev1.PersistentVolumeClaim {
		byName := map[string]*corev1.PersistentVolumeClaim{}
		list := make([]corev1.PersistentVolumeClaim, 4)
		for i, name := range []string{"log-pg-0", "data-pg-7", "data-pg-0", "data-other-0"} { // in no order
			list[i].Name = name
			byName[name] = &list[i]
		}
		if change != nil {
			change(byName)
		}
		return list
	}
	owner := func(uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "pg", UID: uid}}
	}
	for name, tc := range map[string]struct {
		why         string
		whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType
		claims      []corev1.PersistentVolumeClaim
		want        []string
	}{
		"retains": {"nothing goes", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, claims(nil), nil},
		"retains, stamped": {"a stamp says whose a claim is, and deletes nothing", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, claims(func(c map[string]*corev1.PersistentVolumeClaim) {
			c["data-pg-7"].Annotations = map[string]string{v1alpha1.AnnotationSetUID: "u"}
		}), nil},
		"deletes": {"the claims of the present ordinals go, whether the set owns them yet or not", appsv1.DeletePersistentVolumeClaimRetentionPolicyType, claims(nil), []string{"data-pg-0", "log-pg-0"}},
		"deletes, was larger": {"and those of earlier ordinals that it still owns", appsv1.DeletePersistentVolumeClaimRetentionPolicyType, claims(func(c map[string]*corev1.PersistentVolumeClaim) {
			c["data-pg-7"].OwnerReferences = owner("u")
		}), []string{"data-pg-0", "data-pg-7", "log-pg-0"}},
		"retains since a moment ago": {"the garbage collector goes by owners", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, claims(func(c map[string]*corev1.PersistentVolumeClaim) {
			c["data-pg-0"].OwnerReferences = owner("u")
		}), []string{"data-pg-0"}},
		"an earlier set of the name": {"owners are told by UID", appsv1.RetainPersistentVolumeClaimRetentionPolicyType, claims(func(c map[string]*corev1.PersistentVolumeClaim) {
			c["data-pg-0"].OwnerReferences = owner("before")
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range Doomed(set(func(s *appsv1.StatefulSet) {
				s.Name, s.UID = "pg", "u"
				s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: tc.whenDeleted}
				s.Spec.VolumeClaimTemplates = make([]corev1.PersistentVolumeClaim, 2)
				s.Spec.VolumeClaimTemplates[0].Name, s.Spec.VolumeClaimTemplates[1].Name = "data", "log"
			}), tc.claims) {
				got = append(got, c.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
		})
	}
}

func TestOrphaning(t *testing.T) {
	for options, want := range map[string]bool{
		"": false, "{}": false, `{"propagationPolicy":"Background"}`: false, `{"propagationPolicy":"Foreground"}`: false,
		`{"propagationPolicy":"Orphan"}`: true, `{"orphanDependents":true}`: true, `{"orphanDependents":false}`: false,
	} {
		if got, err := orphaning([]byte(options)); got != want || err != nil {
			t.Errorf("options %q leave what is owned: %t, %v; want %t", options, got, err, want)
		}
	}
	if _, err := orphaning([]byte("[]")); err == nil {
		t.Error("options that are none were read")
	}
}
