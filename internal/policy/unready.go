package policy

import (
	"fmt"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Unready is a policy that cannot be made ready. It holds nothing, and could be the
// one that forbids or bounds what is to be done. Whoever does what cannot be taken
// back asks for it first.
type Unready struct {
	Name string
	// Why says what is wrong with it.
	Why string
	// widest is the policy as far as it can be read; what cannot picks everything.
	widest *Policy
}

// Make makes a policy ready, or says that it cannot be: one of the two is nil.
func Make(p *v1alpha1.StoragePolicy) (*Policy, *Unready) {
	c, errs := compile(p)
	if len(errs) > 0 {
		return nil, &Unready{Name: p.Name, Why: errs.ToAggregate().Error(), widest: c}
	}
	return c, nil
}

// GrowthInDoubt says which of the policies that cannot be made ready may have
// another say in the growth of a claim than the one by which it grows (nil: none);
// empty: none may. Those are, of the policies that may match the claim as far as
// that can be read,
//
//	one with an expansion that would act before that one
//	one whose guardrails would refuse a size
//
// A policy that surely does not match a claim does not keep it from growing: a slip
// of the pen in one team's policy must not fill up the volumes of all others.
func GrowthInDoubt(unready []*Unready, growing *Policy, c Claim) string {
	for _, u := range unready {
		acts := u.widest.Expansion != nil && (growing == nil || order(u.widest, growing) < 0)
		if (acts || u.widest.refusesSizes()) && u.widest.MatchesClaim(c) {
			return fmt.Sprintf("StoragePolicy %q is not valid, and may be the one that says whether and how far it grows: put it right or take it away: %s", u.Name, u.Why)
		}
	}
	return ""
}

// refusesSizes says whether the policy's guardrails can refuse that a claim grows.
func (p *Policy) refusesSizes() bool {
	g := p.Guardrails
	if g == nil {
		return false
	}
	denies := func(r v1alpha1.Rule) bool { return p.ActionOf(r) == v1alpha1.Deny }
	return g.Claim != nil && (g.Claim.MaxSize != nil && denies(v1alpha1.RuleClaimMaxSize) || g.Claim.MaxGrowthPercent > 0 && denies(v1alpha1.RuleClaimMaxGrowth)) ||
		g.StorageClass != nil && g.StorageClass.MaxIOPS > 0 && denies(v1alpha1.RuleClassMaxIOPS) // by the GiB
}
