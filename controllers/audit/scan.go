package audit

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/snapshot"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/storageclass"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Observed is what there is to judge.
type Observed struct {
	Claims    []corev1.PersistentVolumeClaim
	Classes   []storagev1.StorageClass
	Sets      []appsv1.StatefulSet
	Snapshots []snapshotv1.VolumeSnapshot
	// Told is what there is to say of an orphan by its UID; empty: nothing.
	Told func(types.UID) string
}

// Result is what a scan found about one policy.
type Result struct {
	MatchedClaims int32
	// Broken counts the violations by what they break. Of the violations
	// themselves only some are kept: hundreds of policies may be broken by each
	// of thousands of claims.
	Broken    map[Break]int32
	worst     []violation // the first maxViolations, sorted
	Compliant []string    // classes, sorted
	// Orphans are the claims left behind that the policy acts on, sorted; nil where
	// it says nothing of them.
	Orphans *v1alpha1.OrphanReport
	// Overlaps are the policies that have a claim in common with this one, each
	// with the first of these claims by namespace and name.
	Overlaps map[string]string
}

// Break is what a violation breaks, and what follows.
type Break struct {
	Rule   v1alpha1.Rule
	Action v1alpha1.Action
}

// violation is a finding about an object that exists.
type violation struct {
	kind, namespace, name string
	policy.Finding
}

// compare sorts violations as the status lists them.
func compare(a, b violation) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
		cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Found, b.Found))
}

// Count is how many violations there are.
func (r *Result) Count() int32 {
	var n int32
	for _, of := range r.Broken {
		n += of
	}
	return n
}

// Violations are the first of them, with their texts.
func (r *Result) Violations() []v1alpha1.Violation {
	var listed []v1alpha1.Violation
	for _, v := range r.worst {
		listed = append(listed, v1alpha1.Violation{Kind: v.kind, Namespace: v.namespace, Name: v.name, Rule: v.Rule, Action: v.Action, Message: policy.Short(v.Sentence(), maxSentence)})
	}
	return listed
}

// add counts a violation, and keeps it where it is one of the first.
func (r *Result) add(v violation) {
	r.Broken[Break{v.Rule, v.Action}]++
	at, _ := slices.BinarySearchFunc(r.worst, v, compare)
	if at == maxViolations {
		return
	}
	if len(r.worst) == maxViolations {
		r.worst = r.worst[:maxViolations-1]
	}
	r.worst = slices.Insert(r.worst, at, v)
}

// Scan judges everything by every policy. It fails where ctx ends meanwhile:
// thousands of claims and hundreds of policies take their time.
func Scan(ctx context.Context, w *world.World, policies []*policy.Policy, seen Observed) (map[string]*Result, error) {
	results := map[string]*Result{}
	for _, p := range policies {
		results[p.Name] = &Result{Broken: map[Break]int32{}, Overlaps: map[string]string{}}
	}
	claims, err := scanClaims(ctx, w, policies, seen.Claims, results)
	if err != nil {
		return nil, err
	}
	scanOrphans(policies, seen, claims, results)
	if err := scanSnapshots(ctx, w, policies, seen.Snapshots, claims, results); err != nil {
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
	}
	return results, nil
}

// scanClaims judges claims, and answers what policies look at of each.
func scanClaims(ctx context.Context, w *world.World, policies []*policy.Policy, claims []corev1.PersistentVolumeClaim, results map[string]*Result) (map[types.NamespacedName]policy.Claim, error) {
	together, looked := groups{}, map[types.NamespacedName]policy.Claim{}
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp != nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		subject, of, err := claim.Look(ctx, w, c)
		if err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		if subject.Cover, err = claim.CoverOf(ctx, w, policies, c, of, false); err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		looked[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = of
		under := new(big.Int)
		for at, p := range policies {
			if !p.MatchesClaim(of) {
				continue
			}
			under.SetBit(under, at, 1)
			results[p.Name].MatchedClaims++
			record(results, "PersistentVolumeClaim", c.Namespace, c.Name,
				p.Findings(claim.Breaches(p, subject), c.Labels, of.Namespace, w.Now()))
		}
		together.add(under, c.Namespace+"/"+c.Name)
	}
	together.overlaps(policies, results)
	return looked, nil
}

// scanSnapshots judges the snapshots of these claims. One whose claim is gone
// has no policy that is about it.
func scanSnapshots(ctx context.Context, w *world.World, policies []*policy.Policy, snapshots []snapshotv1.VolumeSnapshot, claims map[types.NamespacedName]policy.Claim, results map[string]*Result) error {
	for i := range snapshots {
		s := &snapshots[i]
		if s.DeletionTimestamp != nil || s.Spec.Source.PersistentVolumeClaimName == nil {
			continue
		}
		of, there := claims[types.NamespacedName{Namespace: s.Namespace, Name: *s.Spec.Source.PersistentVolumeClaimName}]
		if !there {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		findings, err := snapshot.Findings(ctx, w, policies, s, of)
		if err != nil {
			return fmt.Errorf("snapshot %s/%s: %w", s.Namespace, s.Name, err)
		}
		record(results, "VolumeSnapshot", s.Namespace, s.Name, findings)
	}
	return nil
}

// groups are the sets of policies that claims are under, each by a bit for each
// policy, with the first of its claims. Thousands of claims are under few sets.
type groups map[string]string

func (g groups) add(under *big.Int, claim string) {
	key := string(under.Bytes())
	if first, known := g[key]; !known || claim < first {
		g[key] = claim
	}
}

// overlaps tells each policy which others it shares a claim with.
func (g groups) overlaps(policies []*policy.Policy, results map[string]*Result) {
	for key, claim := range g {
		under := new(big.Int).SetBytes([]byte(key))
		var members []*policy.Policy
		for at, p := range policies {
			if under.Bit(at) == 1 {
				members = append(members, p)
			}
		}
		for _, p := range members {
			shared := results[p.Name].Overlaps
			for _, other := range members {
				if first, known := shared[other.Name]; other != p && (!known || claim < first) {
					shared[other.Name] = claim
				}
			}
		}
	}
}

// record adds findings about an object to the results of their policies.
func record(results map[string]*Result, kind, namespace, name string, findings []policy.Finding) {
	for _, f := range findings {
		results[f.Policy].add(violation{kind, namespace, name, f})
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
