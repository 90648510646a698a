package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Observed is what there is to judge.
type Observed struct {
	Claims  []corev1.PersistentVolumeClaim
	Classes []storagev1.StorageClass
	Sets    []appsv1.StatefulSet
}

// Result is what a scan found about one policy.
type Result struct {
	MatchedClaims int32
	Violations    []v1alpha1.Violation // all, sorted
	Compliant     []string             // classes, sorted
	// Overlaps are the policies that have a claim in common with this one, each
	// with one of these claims.
	Overlaps map[string]string
}

// Scan judges everything by every policy.
func Scan(ctx context.Context, w *world.World, policies []*policy.Policy, seen Observed) (map[string]*Result, error) {
	results := map[string]*Result{}
	for _, p := range policies {
		results[p.Name] = &Result{Overlaps: map[string]string{}}
	}
	if err := scanClaims(ctx, w, policies, seen.Claims, results); err != nil {
		return nil, err
	}
	for i := range seen.Classes {
		class := &seen.Classes[i]
		record(results, "StorageClass", "", class.Name, storageclass.Findings(w, policies, class))
	}
	for i := range seen.Sets {
		set := &seen.Sets[i]
		findings, err := statefulset.Findings(ctx, w, policies, set)
		if err != nil {
			return nil, err
		}
		record(results, "StatefulSet", set.Namespace, set.Name, findings)
	}
	for _, p := range policies {
		results[p.Name].Compliant = compliant(p, seen.Classes)
		slices.SortFunc(results[p.Name].Violations, func(a, b v1alpha1.Violation) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
		})
	}
	return results, nil
}

func scanClaims(ctx context.Context, w *world.World, policies []*policy.Policy, claims []corev1.PersistentVolumeClaim, results map[string]*Result) error {
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp != nil {
			continue
		}
		subject, of, err := claim.Look(ctx, w, c)
		if err != nil {
			return fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		var under []*policy.Policy
		for _, p := range policies {
			if p.MatchesClaim(of) {
				under = append(under, p)
			}
		}
		for _, p := range under {
			r := results[p.Name]
			r.MatchedClaims++
			for _, other := range under {
				if _, known := r.Overlaps[other.Name]; !known && other != p {
					r.Overlaps[other.Name] = c.Namespace + "/" + c.Name
				}
			}
			record(results, "PersistentVolumeClaim", c.Namespace, c.Name,
				p.Findings(claim.Breaches(p.Guardrails, subject), c.Labels, of.Namespace, w.Now()))
		}
	}
	return nil
}

// record adds findings about an object to the results of their policies.
func record(results map[string]*Result, kind, namespace, name string, findings []policy.Finding) {
	for _, f := range findings {
		r := results[f.Policy]
		r.Violations = append(r.Violations, v1alpha1.Violation{
			Kind: kind, Namespace: namespace, Name: name, Rule: f.Rule, Action: f.Action, Message: f.Sentence(),
		})
	}
}

// compliant are the classes that a claim under the policy may name.
func compliant(p *policy.Policy, classes []storagev1.StorageClass) []string {
	var names []string
	for i := range classes {
		class := &classes[i]
		if !p.MatchesClass(class.Name, class.Provisioner) {
			continue
		}
		if p.Guardrails == nil || len(storageclass.Breaches(p.Guardrails.StorageClass, class, 0)) == 0 {
			names = append(names, class.Name)
		}
	}
	slices.Sort(names)
	return names
}
