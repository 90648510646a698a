package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// Subject is a set with what its rules need to know besides.
type Subject struct {
	Set *appsv1.StatefulSet
	// Budgeted says whether a PodDisruptionBudget selects the set's Pods.
	Budgeted bool
}

// Breaches judges a set by all rules about the set itself. A set without claim
// templates keeps nothing on volumes of its own and is not judged.
func Breaches(r *v1alpha1.StatefulSetRules, s Subject) []policy.Breach {
	if r == nil || len(s.Set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	deleted, scaled := Retention(s.Set)
	found := retention(v1alpha1.RuleSetWhenDeleted, "whenDeleted", deleted, r.WhenDeleted)
	found = append(found, retention(v1alpha1.RuleSetWhenScaled, "whenScaled", scaled, r.WhenScaled)...)
	found = append(found, gracePeriod(r, s)...)
	return append(found, budget(r, s)...)
}

// Retention is what becomes of a set's claims, with the API's default.
// https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention
func Retention(set *appsv1.StatefulSet) (whenDeleted, whenScaled v1alpha1.RetentionAction) {
	whenDeleted, whenScaled = v1alpha1.RetainClaims, v1alpha1.RetainClaims
	if p := set.Spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		if p.WhenDeleted != "" {
			whenDeleted = v1alpha1.RetentionAction(p.WhenDeleted)
		}
		if p.WhenScaled != "" {
			whenScaled = v1alpha1.RetentionAction(p.WhenScaled)
		}
	}
	return whenDeleted, whenScaled
}

func retention(rule v1alpha1.Rule, field string, is, wanted v1alpha1.RetentionAction) []policy.Breach {
	if wanted == "" || is == wanted {
		return nil
	}
	return []policy.Breach{{
		Rule: rule, Field: "spec.persistentVolumeClaimRetentionPolicy." + field, Found: string(is), Wanted: string(wanted),
		Todo: "set it to " + string(wanted),
	}}
}

// defaultGracePeriodSeconds is what the API gives a Pod that says nothing.
const defaultGracePeriodSeconds = 30

func gracePeriod(r *v1alpha1.StatefulSetRules, s Subject) []policy.Breach {
	is := int64(defaultGracePeriodSeconds)
	if p := s.Set.Spec.Template.Spec.TerminationGracePeriodSeconds; p != nil {
		is = *p
	}
	if is >= r.MinTerminationGracePeriodSeconds {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleSetGracePeriod, Field: "spec.template.spec.terminationGracePeriodSeconds", Found: fmt.Sprint(is),
		Wanted: fmt.Sprintf("at least %d", r.MinTerminationGracePeriodSeconds),
		Todo:   "give the Pods that long to end in: a database that is killed has to recover at its next start",
	}}
}

func budget(r *v1alpha1.StatefulSetRules, s Subject) []policy.Breach {
	if r.PodDisruptionBudget != v1alpha1.Required || s.Budgeted {
		return nil
	}
	return []policy.Breach{{
		Rule: v1alpha1.RuleSetDisruptionBudget, Field: "a PodDisruptionBudget for the set's Pods", Found: "not there", Wanted: "one",
		Todo: "apply a PodDisruptionBudget that selects the Pods, so that a drain takes them one by one",
	}}
}

// templateOf is a claim template as its claims will be: in the set's namespace,
// with the labels of the set's selector over its own, as the StatefulSet
// controller makes them, and with the set's name, as the manager stamps them.
// https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/statefulset/stateful_set_utils.go (getPersistentVolumeClaims)
func templateOf(set *appsv1.StatefulSet, i int) *corev1.PersistentVolumeClaim {
	template := set.Spec.VolumeClaimTemplates[i].DeepCopy()
	template.Namespace = set.Namespace
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, v1alpha1.AnnotationSetName, set.Name)
	if set.Spec.Selector == nil || len(set.Spec.Selector.MatchLabels) == 0 {
		return template
	}
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	maps.Copy(template.Labels, set.Spec.Selector.MatchLabels)
	return template
}

// Soften gives a set's findings the strongest action that they may have at
// apply: what is about the budget or about a template is at most a warning.
func Soften(findings []policy.Finding, template bool) []policy.Finding {
	for i, f := range findings {
		if f.Action == v1alpha1.Deny && (template || f.Rule == v1alpha1.RuleSetDisruptionBudget) {
			findings[i].Action = v1alpha1.Warn
		}
	}
	return findings
}

// Losing says which ordinals lose their Pod when a set goes from one size to
// another, by spec.replicas and spec.ordinals.start.
func Losing(old, now *appsv1.StatefulSet) func(ordinal int32) bool {
	before, after := has(old), has(now)
	return func(ordinal int32) bool { return before(ordinal) && !after(ordinal) }
}

// has says which ordinals a set has. They are never listed: there may be two
// thousand million, by a slip of the finger.
func has(set *appsv1.StatefulSet) func(ordinal int32) bool {
	var from int64
	if o := set.Spec.Ordinals; o != nil {
		from = int64(o.Start)
	}
	replicas := int64(1) // the API's default
	if set.Spec.Replicas != nil {
		replicas = int64(*set.Spec.Replicas)
	}
	return func(ordinal int32) bool { return int64(ordinal) >= from && int64(ordinal) < from+replicas }
}

// InRange says whether a set has a Pod of an ordinal, by spec.replicas and
// spec.ordinals.start.
func InRange(set *appsv1.StatefulSet, ordinal int32) bool { return has(set)(ordinal) }

// IsClaimOfPresent says whether a claim is by its name that of an ordinal that a
// set has: the StatefulSet controller goes by the name alone, and mounts it.
func IsClaimOfPresent(set *appsv1.StatefulSet, claim string) bool {
	return isClaimOf(set, claim, has(set))
}

// isClaimOf says whether a claim is by its name a set's, and of an ordinal that
// is asked for.
func isClaimOf(set *appsv1.StatefulSet, claim string, of func(ordinal int32) bool) bool {
	return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(template corev1.PersistentVolumeClaim) bool {
		ordinal, ok := OrdinalOf(claim, template.Name, set.Name)
		return ok && of(ordinal)
	})
}

// OrdinalOf reads the ordinal from the name of a claim, <template>-<set>-<ordinal>:
// decimal digits, written as Kubernetes does, without a sign and without
// leading zeros.
func OrdinalOf(claim, template, set string) (ordinal int32, ok bool) {
	digits, ok := strings.CutPrefix(claim, template+"-"+set+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	return int32(n), err == nil && strconv.FormatInt(n, 10) == digits && n >= 0
}

// Doomed are those of the claims of a set's namespace that the set's deletion
// would delete.
//
//	the set is an owner       the garbage collector deletes it, whatever its ordinal:
//	                          a scale-down with whenScaled Retain leaves the owner on
//	whenDeleted is Delete     and it is the claim of a present ordinal: the StatefulSet
//	                          controller makes the set its owner, if it has not yet
//	else                      it stays, though it may carry the set's stamp
//
// https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention
func Doomed(set *appsv1.StatefulSet, claims []corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim {
	whenDeleted, _ := Retention(set)
	var doomed []*corev1.PersistentVolumeClaim
	for i := range claims {
		owned := slices.ContainsFunc(claims[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == set.UID })
		if owned || whenDeleted == v1alpha1.DeleteClaims && isClaimOf(set, claims[i].Name, has(set)) {
			doomed = append(doomed, &claims[i])
		}
	}
	slices.SortFunc(doomed, func(a, b *corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return doomed
}
