package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
)

// freezesAtOnce is how many freezes of one schedule are under way at once. A run
// of many replicas is not to stop them all for long.
const freezesAtOnce = 8

// errHook is why a copy was not asked for that a hook stands before.
var errHook = errors.New("no copy without its hooks")

// askFrozen asks for copies between the hooks of their schedule. Pods are listed
// and not watched: this is done once a run, and only for schedules with hooks.
func (r *Reconciler) askFrozen(ctx context.Context, s *v1alpha1.SnapshotSchedule, asks []*ask) error {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list the Pods of namespace %s: %w", s.Namespace, err)
	}
	var cuts []hooks.Cut
	byName := map[string]*ask{}
	for _, a := range asks {
		cuts = append(cuts, a.cut())
		byName[a.cut().Name] = a
	}
	owner := hooks.Owner{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	var group errgroup.Group
	group.SetLimit(freezesAtOnce)
	for _, freeze := range hooks.Plan(s.Spec.Hooks, pods.Items, cuts) {
		group.Go(func() error {
			r.freeze(ctx, owner, freeze, byName)
			return nil
		})
	}
	_ = group.Wait() // each object has its own outcome
	return nil
}

// freeze asks for the objects of one freeze. Each goroutine has some of its own.
func (r *Reconciler) freeze(ctx context.Context, owner hooks.Owner, freeze hooks.Freeze, byName map[string]*ask) {
	create := func(ctx context.Context, annotations map[string]string) []string {
		var made []string
		var mu sync.Mutex
		var group errgroup.Group
		group.SetLimit(createAtOnce)
		for _, name := range freeze.Copies {
			group.Go(func() error {
				a := byName[name]
				// One that was there may have been cut before these hooks ran.
				if a.do(ctx, annotations); a.fresh {
					mu.Lock()
					defer mu.Unlock()
					made = append(made, name)
				}
				return nil
			})
		}
		_ = group.Wait()
		slices.Sort(made)
		return made
	}
	if len(freeze.Before) == 0 { // no Pod has the claims, so nothing is written to them
		create(ctx, nil)
		return
	}
	if result := r.hooks.Freeze(ctx, owner, freeze, create); result.Failed != "" {
		for _, name := range freeze.Copies {
			byName[name].outcome = fmt.Errorf("%w: %s", errHook, result.Failed)
		}
	}
}
