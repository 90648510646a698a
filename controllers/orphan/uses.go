package orphan

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uses are the last times at which a Pod of a claim came or went. One that came
// and went between two sweeps is not there for either to see.
type uses struct {
	clock clock.PassiveClock

	mu sync.Mutex
	at map[client.ObjectKey]time.Time
}

// watch follows an informer of Pods.
func (u *uses) watch(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: u.note,
		DeleteFunc: func(o any) {
			if unknown, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = unknown.Obj
			}
			u.note(o)
		},
	})
	return err
}

// note takes note of a Pod that came or went.
func (u *uses) note(o any) {
	pod, is := o.(*corev1.Pod)
	if !is {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range pod.Spec.Volumes {
		if name := claimOf(pod.Name, v); name != "" {
			u.at[client.ObjectKey{Namespace: pod.Namespace, Name: name}] = u.clock.Now()
		}
	}
}

// last is when a claim was last seen to be used; zero: never. One that was noted by
// a clock that was ahead counts as one of now, once that has gone back: else a mark
// would begin anew in each sweep until then.
func (u *uses) last(claim client.ObjectKey) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, used := u.at[claim]
	if now := u.clock.Now(); used && at.Round(0).After(now.Round(0)) {
		at = now
		u.at[claim] = at
	}
	return at
}

// keep forgets the uses of claims that are not there any more.
func (u *uses) keep(there func(client.ObjectKey) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key := range u.at {
		if !there(key) {
			delete(u.at, key)
		}
	}
}
