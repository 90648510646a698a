package world

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// compiled keeps policies ready to judge with: selectors are parsed once for
// each version of a policy, and policies sorted once for each change of any, not
// once for each request. They are looked at in the informer's store: a list by the
// cache is a copy of each, 50 KB for 50 policies. An event would come too late: who
// acts on the same event could come first, see what was before, and see no other.
type compiled struct {
	informer toolscache.SharedIndexInformer // nil: none is known

	mu      sync.Mutex
	seen    map[types.UID]version
	ready   []*policy.Policy  // those of seen that can be made ready, as they act
	unready []*policy.Unready // the others, by name
}

type version struct {
	generation int64
	ready      *policy.Policy  // nil: it cannot be made ready
	unready    *policy.Unready // then
}

// Policies are all policies that can be made ready, as they act: highest
// priority first. One that cannot is the audit's to report. The slice is the
// caller's own, the policies are only to be read.
func (w *World) Policies(ctx context.Context) ([]*policy.Policy, error) {
	ready, _, err := w.AllPolicies(ctx)
	return ready, err
}

// AllPolicies are also those that cannot be made ready, by name: they hold nothing,
// and could be the ones that bound what is to be done.
func (w *World) AllPolicies(ctx context.Context) (ready []*policy.Policy, unready []*policy.Unready, err error) {
	if i := w.policies.informer; i != nil && i.HasSynced() {
		all := i.GetStore().List()
		items := make([]*v1alpha1.StoragePolicy, len(all))
		for n, o := range all {
			items[n] = o.(*v1alpha1.StoragePolicy)
		}
		ready, unready = w.policies.of(items)
		return ready, unready, nil
	}
	var list v1alpha1.StoragePolicyList
	// What the informer holds is only read here, so no copy is needed.
	if err := w.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list StoragePolicies: %w", err)
	}
	items := make([]*v1alpha1.StoragePolicy, len(list.Items))
	for n := range list.Items {
		items[n] = &list.Items[n]
	}
	ready, unready = w.policies.of(items)
	return ready, unready, nil
}

func (c *compiled) of(items []*v1alpha1.StoragePolicy) ([]*policy.Policy, []*policy.Unready) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := func(p *v1alpha1.StoragePolicy) bool {
		v, ok := c.seen[p.UID]
		return !ok || v.generation != p.Generation
	}
	same := len(items) == len(c.seen)
	for i := 0; same && i < len(items); i++ {
		same = !changed(items[i])
	}
	if same {
		return slices.Clone(c.ready), c.unready
	}
	now := make(map[types.UID]version, len(items))
	ready := make([]*policy.Policy, 0, len(items))
	var unready []*policy.Unready
	for _, p := range items {
		v := c.seen[p.UID]
		if changed(p) {
			v = version{generation: p.Generation}
			v.ready, v.unready = policy.Make(p.DeepCopy())
		}
		now[p.UID] = v
		if v.ready != nil {
			ready = append(ready, v.ready)
		} else {
			unready = append(unready, v.unready)
		}
	}
	policy.Sort(ready)
	slices.SortFunc(unready, func(a, b *policy.Unready) int { return cmp.Compare(a.Name, b.Name) })
	c.seen, c.ready, c.unready = now, ready, unready
	return slices.Clone(ready), unready
}
