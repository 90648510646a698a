package claim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// State is a claim as its protection hangs on it.
type State struct {
	Of    policy.Claim
	Bound bool
	// OfPod: it is a generic ephemeral volume, which goes with its Pod.
	OfPod bool
	// Reason is what the override annotation says; empty: nothing is overridden.
	Reason string
}

// StateOf is the state of a claim, looked up.
func StateOf(ctx context.Context, w *world.World, claim *corev1.PersistentVolumeClaim) (State, error) {
	_, of, err := Look(ctx, w, claim)
	return State{Of: of, Bound: isBound(claim), OfPod: OfPod(claim), Reason: claim.Annotations[v1alpha1.AnnotationOverrideDeletion]}, err
}

func isBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound || claim.Spec.VolumeName != ""
}

// TakesOverride says whether it takes the right to override a policy to bring a
// claim from one state to the other; before is nil for one that is made.
//
//	the policy refuses to let it go, and then no longer does    it takes the right
//	it carries the override annotation, and that is new, or
//	the claim comes under the policy with it                    it takes the right
//	else                                                        it does not
//
// The annotation is judged for what it can ever lift: whatever the action is now,
// whether the claim is bound yet, and whether an exemption still runs.
func TakesOverride(p *policy.Policy, before *State, after State, now time.Time) bool {
	freed := before != nil && before.kept(p, now) && !after.kept(p, now)
	armed := after.Reason != "" && after.guarded(p) &&
		(before == nil || before.Reason != after.Reason || !before.guarded(p))
	return freed || armed
}

// kept says whether the policy refuses to let the claim go, or its Pod.
func (s State) kept(p *policy.Policy, now time.Time) bool {
	if s.OfPod || !s.guarded(p) {
		return false
	}
	denies := func(r v1alpha1.Rule) bool {
		return p.ActionOf(r) == v1alpha1.Deny && !p.Exempts(r, s.Of.Labels, s.Of.Namespace, now)
	}
	d := p.Guardrails.Deletion
	return guardsDeletion(d) && (s.Bound || d.Protect != v1alpha1.ProtectWhenBound) && denies(v1alpha1.RuleDeletion) ||
		p.Guardrails.ScaleDown != nil && s.Bound && denies(v1alpha1.RuleScaleDown)
}

// guarded says whether the claim is under a policy that protects claims.
func (s State) guarded(p *policy.Policy) bool { return Guards(p) && p.MatchesClaim(s.Of) }

// Guards says whether a policy protects claims at all.
func Guards(p *policy.Policy) bool {
	return p.Guardrails != nil && (guardsDeletion(p.Guardrails.Deletion) || p.Guardrails.ScaleDown != nil)
}

// GuardsDeletion says whether a policy protects claims from deletion at all.
func GuardsDeletion(p *policy.Policy) bool {
	return p.Guardrails != nil && guardsDeletion(p.Guardrails.Deletion)
}

func guardsDeletion(r *v1alpha1.DeletionRules) bool {
	return r != nil && r.Protect != v1alpha1.ProtectNever
}
