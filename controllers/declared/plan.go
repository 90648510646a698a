package declared

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
)

// Observed is what there is to plan by.
type Observed struct {
	Set *appsv1.StatefulSet
	// Claims are those of the namespace.
	Claims []corev1.PersistentVolumeClaim
	// Bounds are those of the templates, by name.
	Bounds map[string]Bound
	// Blocked says by the name of a claim why it cannot be asked to grow now: its
	// class, the budget, a refusal.
	Blocked map[string]string
	// JustAsked are claims by name of which what the driver says may still be about
	// the size before.
	JustAsked map[string]bool
}

// Bound is the most that a policy lets the claims of a template have.
type Bound struct {
	Policy  string // empty: there is none
	MaxSize resource.Quantity
}

// Plan is what is to be done.
type Plan struct {
	Grow []Growth
	// Growing are claims that were asked to grow and have not the size yet, Done
	// those that have it. Problems are why others do not grow.
	Growing, Done []string
	Problems      []string
}

// Growth is a claim that is to be asked to grow.
type Growth struct {
	Claim *corev1.PersistentVolumeClaim
	To    resource.Quantity
}

// Decide says what is to be done for one set, as the table in doc.go has it.
func Decide(seen Observed) Plan {
	sizes, wrong := statefulset.Declared(seen.Set)
	plan := Plan{Problems: wrong}
	for _, template := range slices.Sorted(maps.Keys(sizes)) {
		size, bound := sizes[template], seen.Bounds[template]
		if bound.Policy != "" && size.Cmp(bound.MaxSize) > 0 {
			plan.Problems = append(plan.Problems, fmt.Sprintf("annotation %s: %s=%s is above the expansion.maxSize of StoragePolicy %s, which is %s",
				v1alpha1.AnnotationSize, template, size.String(), bound.Policy, bound.MaxSize.String()))
			continue
		}
		for _, c := range statefulset.ClaimsOf(seen.Set, template, seen.Claims) {
			plan.judge(seen, c, size)
		}
	}
	return plan
}

// judge judges one claim.
func (p *Plan) judge(seen Observed, c *corev1.PersistentVolumeClaim, size resource.Quantity) {
	asked, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	cannot := has.Cmp(asked) < 0 && statefulset.Infeasible(c) && !statefulset.Modifying(c)
	switch {
	case c.DeletionTimestamp != nil, c.Status.Phase != corev1.ClaimBound:
	case asked.Cmp(size) >= 0 && has.Cmp(size) >= 0:
		p.Done = append(p.Done, c.Name)
	case cannot && asked.Cmp(size) == 0 && !seen.JustAsked[c.Name]:
		p.Problems = append(p.Problems, fmt.Sprintf("claim %s: the driver says that its volume cannot grow from %s to %s (see the claim's events): declare another size", c.Name, has.String(), asked.String()))
	case !cannot && (has.Cmp(asked) < 0 || statefulset.Resizing(c)), cannot && asked.Cmp(size) == 0:
		p.Growing = append(p.Growing, c.Name)
	case seen.Blocked[c.Name] != "":
		p.Problems = append(p.Problems, fmt.Sprintf("claim %s: %s", c.Name, seen.Blocked[c.Name]))
	default:
		p.Grow = append(p.Grow, Growth{Claim: c, To: size})
	}
}

// problems are told together.
func (p *Plan) problems() string { return strings.Join(p.Problems, "; ") }
