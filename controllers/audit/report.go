package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// maxViolations is how many the status lists.
const maxViolations = 50

// Bounds of the API on lists and texts.
const (
	maxCompliant = 256
	maxMessage   = 1024
)

// maxSentence bounds what the status says of a violation. A policy may want one of
// 32 values of 2 KiB each; fifty such sentences are more than etcd takes of an object.
const maxSentence = 16 << 10

// cluster is what conditions are judged by besides a policy's own result.
type cluster struct {
	now          time.Time
	defaultClass string // marked as the cluster's default; empty: none
	policies     map[string]*policy.Policy
}

// report is the status of a policy: what was found, and what it means. ready is
// nil where the policy cannot be made ready, for the reasons in errs.
func report(old v1alpha1.StoragePolicyStatus, generation int64, ready *policy.Policy, errs field.ErrorList, r *Result, c cluster) v1alpha1.StoragePolicyStatus {
	status := v1alpha1.StoragePolicyStatus{Conditions: slices.Clone(old.Conditions), ObservedGeneration: generation}
	set := func(kind string, is bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: policy.Short(message, maxMessage), ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(c.now)}
		if is {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	status.LastScanTime = &metav1.Time{Time: c.now}
	if ready == nil {
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonInvalidSelector, "the policy holds nothing: "+errs.ToAggregate().Error())
		for _, kind := range []string{v1alpha1.ConditionConflicting, v1alpha1.ConditionDefaultShadowed, v1alpha1.ConditionExemptionsCurrent} {
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonInvalidSelector, Message: "not judged", ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(c.now),
			})
		}
		return status
	}
	status.MatchedClaims, status.ViolationCount, status.Violations = r.MatchedClaims, r.Count(), r.Violations()
	status.Orphans = r.Orphans
	status.CompliantStorageClasses = r.Compliant[:min(len(r.Compliant), maxCompliant)]
	set(v1alpha1.ConditionReady, true, v1alpha1.ReasonScanned, fmt.Sprintf("%d claims are under the policy, %d violations", r.MatchedClaims, status.ViolationCount))
	reason, message := conflicts(ready, r, c.policies)
	set(v1alpha1.ConditionConflicting, reason != v1alpha1.ReasonNoConflict, reason, message)
	if ready.Defaults != nil && c.defaultClass != "" {
		set(v1alpha1.ConditionDefaultShadowed, true, v1alpha1.ReasonDefaultClass, fmt.Sprintf("StorageClass %q is marked as the cluster's default, which the API server gives to claims that name none; take the mark off for %q to be given", c.defaultClass, ready.Defaults.StorageClassName))
	} else {
		set(v1alpha1.ConditionDefaultShadowed, false, v1alpha1.ReasonNotShadowed, "no default class stands in the way")
	}
	if ended := ready.Ended(c.now); ended > 0 {
		set(v1alpha1.ConditionExemptionsCurrent, false, v1alpha1.ReasonExemptionEnded, fmt.Sprintf("%d exemptions have ended: their rules apply again; take them out", ended))
	} else {
		set(v1alpha1.ConditionExemptionsCurrent, true, v1alpha1.ReasonExemptionsRun, "no exemption has ended")
	}
	return status
}

// conflicts says what of other policies cannot go together with this one.
func conflicts(p *policy.Policy, r *Result, all map[string]*policy.Policy) (reason, message string) {
	var same, contrary []string
	for name, example := range r.Overlaps {
		other := all[name]
		if other == nil {
			continue
		}
		if p.Priority == other.Priority && p.Defaults != nil && other.Defaults != nil && p.Defaults.StorageClassName != other.Defaults.StorageClassName {
			same = append(same, fmt.Sprintf("StoragePolicy %q has the same priority %d and another default class (as for claim %s); %q acts", name, p.Priority, example, min(p.Name, name)))
		}
		if p.Priority == other.Priority && p.Expansion != nil && other.Expansion != nil && !equality.Semantic.DeepEqual(p.Expansion, other.Expansion) {
			same = append(same, fmt.Sprintf("StoragePolicy %q has the same priority %d and another expansion (as for claim %s); %q acts", name, p.Priority, example, min(p.Name, name)))
		}
		if p.Priority == other.Priority && p.Orphans != nil && other.Orphans != nil && *p.Orphans != *other.Orphans {
			same = append(same, fmt.Sprintf("StoragePolicy %q has the same priority %d and says otherwise of orphans (as for claim %s); %q acts", name, p.Priority, example, min(p.Name, name)))
		}
		if what := contradiction(p.Guardrails, other.Guardrails); what != "" {
			contrary = append(contrary, fmt.Sprintf("claim %s cannot keep this policy and StoragePolicy %q: %s", example, name, what))
		}
	}
	slices.Sort(same)
	slices.Sort(contrary)
	switch {
	case len(contrary) > 0:
		return v1alpha1.ReasonContradiction, strings.Join(append(contrary, same...), "; ")
	case len(same) > 0:
		return v1alpha1.ReasonSamePriority, strings.Join(same, "; ")
	}
	return v1alpha1.ReasonNoConflict, "no other policy contradicts it"
}

// contradiction says which rules of two policies no claim can keep both.
func contradiction(a, b *v1alpha1.Guardrails) string {
	if a == nil || b == nil {
		return ""
	}
	if a.Claim != nil && b.Claim != nil {
		for _, pair := range [][2]*v1alpha1.ClaimRules{{a.Claim, b.Claim}, {b.Claim, a.Claim}} {
			if low, high := pair[0].MinSize, pair[1].MaxSize; low != nil && high != nil && low.Cmp(*high) > 0 {
				return fmt.Sprintf("claim.minSize is %s, claim.maxSize is %s", low, high)
			}
		}
	}
	if a.StorageClass != nil && b.StorageClass != nil && len(a.StorageClass.Allowed) > 0 && len(b.StorageClass.Allowed) > 0 {
		if !slices.ContainsFunc(a.StorageClass.Allowed, func(name string) bool { return slices.Contains(b.StorageClass.Allowed, name) }) {
			return "no StorageClass is allowed by both"
		}
	}
	if a.StorageClass != nil && b.StorageClass != nil {
		for _, both := range []struct{ what, a, b string }{ // the first tells, the same in each scan
			{"volumeBindingMode", string(a.StorageClass.VolumeBindingMode), string(b.StorageClass.VolumeBindingMode)},
			{"reclaimPolicy", string(a.StorageClass.ReclaimPolicy), string(b.StorageClass.ReclaimPolicy)},
		} {
			if both.a != "" && both.b != "" && both.a != both.b {
				return fmt.Sprintf("storageClass.%s is %s and %s", both.what, min(both.a, both.b), max(both.a, both.b))
			}
		}
	}
	return ""
}
