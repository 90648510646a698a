package statefulset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

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

// Losing are the ordinals that lose their Pod when a set goes from one size to
// another, by spec.replicas and spec.ordinals.start.
func Losing(old, now *appsv1.StatefulSet) []int32 {
	from, until := ordinals(now)
	oldFrom, oldUntil := ordinals(old)
	var losing []int32
	for i := oldFrom; i < oldUntil; i++ {
		if i < from || i >= until {
			losing = append(losing, i)
		}
	}
	return losing
}

// ordinals is the half-open range of a set's ordinals.
func ordinals(set *appsv1.StatefulSet) (from, until int32) {
	if o := set.Spec.Ordinals; o != nil {
		from = o.Start
	}
	replicas := int32(1) // the API's default
	if set.Spec.Replicas != nil {
		replicas = *set.Spec.Replicas
	}
	return from, from + replicas
}

// ClaimName is the name of the claim of a template and an ordinal.
func ClaimName(template, set string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", template, set, ordinal)
}
