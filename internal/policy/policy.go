package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// Policy is a StoragePolicy made ready to judge with. It is never changed.
type Policy struct {
	Name     string
	UID      types.UID
	Priority int32
	// Defaults, Guardrails, Expansion, Orphans and Snapshots are as written; nil where the
	// policy has none.
	Defaults   *v1alpha1.PolicyDefaults
	Guardrails *v1alpha1.Guardrails
	Expansion  *v1alpha1.PolicyExpansion
	Orphans    *v1alpha1.PolicyOrphans
	Snapshots  *v1alpha1.PolicySnapshots

	namespaces, claims labels.Selector // nil: not named
	classes            []string
	provisioners       []string
	actions            map[v1alpha1.Rule]v1alpha1.Action
	exemptions         []exemption
	given              []Given
}

// exemption is one let-off, its selectors ready; nil: not named.
type exemption struct {
	objects, namespaces labels.Selector
	rules               []v1alpha1.Rule
	until               time.Time
}

// Compile makes a policy ready, or answers all that is wrong with it: the
// selectors, since the API server does not judge those of custom kinds. Schedules
// that cannot be given do not keep the rest of a policy from holding.
func Compile(p *v1alpha1.StoragePolicy) (*Policy, field.ErrorList) {
	c, errs := compile(p)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// compile makes ready what can be: a selector that cannot be read picks everything.
func compile(p *v1alpha1.StoragePolicy) (*Policy, field.ErrorList) {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	selector := func(s *metav1.LabelSelector, at *field.Path) labels.Selector {
		if s == nil {
			return nil
		}
		ready, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			errs = append(errs, field.Invalid(at, s, fmt.Sprintf("%v; see https://kubernetes.io/docs/concepts/overview/working-with-objects/labels", err)))
		}
		return ready
	}
	c := &Policy{
		Name: p.Name, UID: p.UID, Priority: p.Spec.Priority,
		Defaults: p.Spec.Defaults, Guardrails: p.Spec.Guardrails, Expansion: p.Spec.Expansion, Orphans: p.Spec.Orphans, Snapshots: p.Spec.Snapshots,
		namespaces: selector(p.Spec.Match.NamespaceSelector, spec.Child("match", "namespaceSelector")),
		claims:     selector(p.Spec.Match.ClaimSelector, spec.Child("match", "claimSelector")),
		classes:    p.Spec.Match.StorageClassNames, provisioners: p.Spec.Match.Provisioners,
		actions: map[v1alpha1.Rule]v1alpha1.Action{},
	}
	if s := p.Spec.Snapshots; s != nil {
		c.actions[v1alpha1.RuleSnapshotsRequired] = s.Required
	}
	if g := p.Spec.Guardrails; g != nil {
		for _, o := range g.Overrides {
			c.actions[o.Rule] = o.Action
		}
	}
	for i, e := range p.Spec.Exemptions {
		at := spec.Child("exemptions").Index(i)
		c.exemptions = append(c.exemptions, exemption{
			objects:    selector(e.Selector, at.Child("selector")),
			namespaces: selector(e.NamespaceSelector, at.Child("namespaceSelector")),
			rules:      e.Rules, until: e.Until.Time,
		})
	}
	c.given = given(p)
	return c, errs
}

// Sort orders policies as they act: the highest priority first, then by name.
func Sort(policies []*Policy) { slices.SortFunc(policies, order) }

func order(a, b *Policy) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
}

// Growing is the one of sorted policies by which a claim grows; nil: it is under
// none that has an expansion.
func Growing(policies []*Policy, c Claim) *Policy {
	at := slices.IndexFunc(policies, func(p *Policy) bool { return p.Expansion != nil && p.MatchesClaim(c) })
	if at < 0 {
		return nil
	}
	return policies[at]
}

// OnOrphan is the one of sorted policies that acts where a claim is left behind;
// nil: it is under none that says something of orphans.
func OnOrphan(policies []*Policy, c Claim) *Policy {
	at := slices.IndexFunc(policies, func(p *Policy) bool { return p.Orphans != nil && p.MatchesClaim(c) })
	if at < 0 {
		return nil
	}
	return policies[at]
}

// Namespace is what policies ask of a namespace. The zero value stands for an
// object that is in none.
type Namespace struct {
	Name   string
	Labels map[string]string
	// Terminating: it is being deleted, and what is in it goes with it.
	Terminating bool
}

// IsSystem says whether no policy ever applies there.
func (n Namespace) IsSystem() bool { return slices.Contains(v1alpha1.SystemNamespaces(), n.Name) }

// Claim is what policies ask of a claim, of a claim template, or of the claim
// that a snapshot was taken of.
type Claim struct {
	Namespace Namespace
	Labels    map[string]string
	// ClassName of the claim, the default class resolved; empty: a static claim.
	ClassName string
	// Provisioner of the class; empty where the class is not known.
	Provisioner string
}

// MatchesClaim says whether a claim is under the policy.
func (p *Policy) MatchesClaim(c Claim) bool {
	return !c.Namespace.IsSystem() && selects(p.namespaces, c.Namespace.Labels) && selects(p.claims, c.Labels) &&
		p.MatchesClass(c.ClassName, c.Provisioner)
}

// MatchesStorageClass says whether a class is under the policy by itself. A
// policy about some namespaces or claims judges classes only through those.
func (p *Policy) MatchesStorageClass(name, provisioner string) bool {
	return everything(p.namespaces) && everything(p.claims) && p.MatchesClass(name, provisioner)
}

// RequiresSnapshots says whether the policy asks for a schedule for each claim.
func (p *Policy) RequiresSnapshots() bool { return p.Snapshots != nil && p.Snapshots.Required != "" }

// MatchesNamespace says whether claims of a namespace can be under the policy.
func (p *Policy) MatchesNamespace(n Namespace) bool {
	return !n.IsSystem() && selects(p.namespaces, n.Labels)
}

// MatchesClass says whether claims of a class can be under the policy.
func (p *Policy) MatchesClass(name, provisioner string) bool {
	return (len(p.classes) == 0 || slices.Contains(p.classes, name)) &&
		(len(p.provisioners) == 0 || slices.Contains(p.provisioners, provisioner))
}

func selects(s labels.Selector, l map[string]string) bool {
	return s == nil || s.Matches(labels.Set(l))
}

func everything(s labels.Selector) bool { return s == nil || s.Empty() }

// ActionOf is what happens where a rule does not hold.
func (p *Policy) ActionOf(r v1alpha1.Rule) v1alpha1.Action {
	if a, ok := p.actions[r]; ok {
		return a
	}
	if p.Guardrails == nil || p.Guardrails.Action == "" {
		return v1alpha1.Deny
	}
	return p.Guardrails.Action
}

// Exempts says whether an object with these labels, in this namespace, is let
// off a rule at this time.
func (p *Policy) Exempts(r v1alpha1.Rule, object map[string]string, n Namespace, now time.Time) bool {
	for _, e := range p.exemptions {
		if now.Before(e.until) && (len(e.rules) == 0 || slices.Contains(e.rules, r)) &&
			selects(e.objects, object) && (e.namespaces == nil || n.Name != "" && e.namespaces.Matches(labels.Set(n.Labels))) {
			return true
		}
	}
	return false
}

// Ended counts the exemptions that have ended.
func (p *Policy) Ended(now time.Time) int {
	ended := 0
	for _, e := range p.exemptions {
		if !now.Before(e.until) {
			ended++
		}
	}
	return ended
}
