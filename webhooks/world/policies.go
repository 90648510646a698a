package world

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
)

// compiled keeps policies ready to judge with: selectors are parsed once for
// each version of a policy, and policies sorted once for each change of any, not
// once for each request. Where the informer tells of changes it is not listed
// either before there is one: a list of 50 policies is 50 KB.
type compiled struct {
	told    atomic.Bool  // whether the informer tells of changes
	changes atomic.Int64 // of which it has told

	mu      sync.Mutex
	asOf    int64 // so many changes it had told of when it was listed
	listed  bool
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
	if ready, unready, still := w.policies.still(); still {
		return ready, unready, nil
	}
	asOf := w.policies.changes.Load() // a change while it is listed is one that comes after
	var list v1alpha1.StoragePolicyList
	// What the informer holds is only read here, so no copy is needed.
	if err := w.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list StoragePolicies: %w", err)
	}
	ready, unready = w.policies.of(list.Items, asOf)
	return ready, unready, nil
}

// watch has an informer tell of changes of policies.
func (c *compiled) watch(informer cache.Informer) error {
	change := func(any) { c.changes.Add(1) }
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: change, UpdateFunc: func(_, o any) { change(o) }, DeleteFunc: change,
	})
	c.told.Store(err == nil)
	return err
}

// still answers what was listed last, if nothing has changed since.
func (c *compiled) still() (ready []*policy.Policy, unready []*policy.Unready, still bool) {
	if !c.told.Load() {
		return nil, nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.listed || c.asOf != c.changes.Load() {
		return nil, nil, false
	}
	return slices.Clone(c.ready), c.unready, true
}

// of makes ready what was listed after so many changes.
func (c *compiled) of(items []v1alpha1.StoragePolicy, asOf int64) ([]*policy.Policy, []*policy.Unready) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asOf, c.listed = asOf, true
	changed := func(p *v1alpha1.StoragePolicy) bool {
		v, ok := c.seen[p.UID]
		return !ok || v.generation != p.Generation
	}
	same := len(items) == len(c.seen)
	for i := 0; same && i < len(items); i++ {
		same = !changed(&items[i])
	}
	if same {
		return slices.Clone(c.ready), c.unready
	}
	now := make(map[types.UID]version, len(items))
	ready := make([]*policy.Policy, 0, len(items))
	var unready []*policy.Unready
	for i := range items {
		p := &items[i]
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
