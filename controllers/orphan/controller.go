package orphan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/internal/tally"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Every is the time between two sweeps.
const Every = 30 * time.Second

// A sweep takes no more snapshots and deletes no more claims than this: bursts
// make drivers and clouds refuse calls.
const (
	snapshotsEach = 5
	deletionsEach = 5
)

// Kinds says whether the cluster serves VolumeSnapshots.
type Kinds interface{ Served(snapshots.Family) bool }

// Remade answers which sets are being made anew, as the API server has it: such a
// set is not there for a while, and leaves nothing behind.
type Remade func(context.Context) (func(set types.NamespacedName) bool, error)

// Options are what a Sweeper works with.
type Options struct {
	Client   client.Client
	World    *world.World // its Live reader is asked before anything is deleted
	Kinds    Kinds
	Remade   Remade
	Events   events.EventRecorder
	Clock    clock.WithTicker
	Registry prometheus.Registerer
}

// Sweeper finds orphans and does what policies say. The leader runs it.
type Sweeper struct {
	Options
	instruments *instruments
	uses        *uses
	since       time.Time // since when it has watched
	memories    map[types.UID]*memory

	mu    sync.Mutex
	state map[types.UID]string // what the audit writes into statuses
}

// New makes a Sweeper and registers its metrics.
func New(o Options) *Sweeper {
	s := &Sweeper{
		Options: o, instruments: newInstruments(), uses: &uses{clock: o.Clock, at: map[client.ObjectKey]time.Time{}}, since: o.Clock.Now(),
		memories: map[types.UID]*memory{}, state: map[types.UID]string{},
	}
	o.Registry.MustRegister(s.instruments.all()...)
	return s
}

// Watch starts the informers that only this package reads. They have run for long
// when a replica begins to lead.
func (s *Sweeper) Watch(ctx context.Context, c cache.Cache) error {
	if _, err := c.GetInformer(ctx, &storagev1.VolumeAttachment{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("watch VolumeAttachments: %w", err)
	}
	return s.uses.watch(ctx, c)
}

// NeedLeaderElection says that one replica acts.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends. Informers are synced by now, and since now it is
// known what becomes of each Pod.
func (s *Sweeper) Start(ctx context.Context) error {
	s.since = s.Clock.Now()
	tick := s.Clock.NewTicker(Every)
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Sweep for orphaned claims, trying again", "after", Every.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Told is what there is to say of an orphan, for the status of its policy; empty:
// nothing yet.
func (s *Sweeper) Told(claim types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state[claim]
}

// Sweep looks at each claim once and does what is due. One that fails stops no
// other.
func (s *Sweeper) Sweep(ctx context.Context) error {
	policies, err := s.World.Policies(ctx)
	if err != nil {
		return err
	}
	var claims corev1.PersistentVolumeClaimList
	if err := s.World.Cache.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	t := &turn{eyes: s.look(s.World.Cache, policies), kept: map[types.UID]*memory{}}
	there := make(map[client.ObjectKey]bool, len(claims.Items))
	var failed []error
	for i := range claims.Items {
		c := &claims.Items[i]
		there[client.ObjectKeyFromObject(c)] = true
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, stamped := StampOf(c); !stamped && c.Annotations[v1alpha1.AnnotationOrphanedSince] == "" {
			continue
		}
		if err := s.one(ctx, t, c); err != nil {
			failed = append(failed, claimError(c, err))
		}
	}
	failed = append(failed, s.act(ctx, t))
	s.uses.keep(func(key client.ObjectKey) bool { return there[key] })
	s.settle(t)
	return errors.Join(failed...)
}

func claimError(c *corev1.PersistentVolumeClaim, err error) error {
	return fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
}

// turn is one sweep.
type turn struct {
	eyes    *eyes
	orphans []orphaned
	due     []orphaned            // those of them with a step to take
	kept    map[types.UID]*memory // of those, and of what is being marked
}

// orphaned is a claim that was left behind.
type orphaned struct {
	claim  *corev1.PersistentVolumeClaim
	seen   Sight
	memory *memory
}

// one looks at one claim, and does at once what nothing is lost by.
func (s *Sweeper) one(ctx context.Context, t *turn, c *corev1.PersistentVolumeClaim) error {
	now := s.Clock.Now()
	m := s.memories[c.UID]
	seen, err := s.sight(ctx, now, t.eyes, c)
	if err != nil {
		if m != nil { // unknown is not well: it is what it was, and what failed is not forgotten
			t.keep(orphaned{claim: c, memory: m})
		}
		return err
	}
	v := Decide(now, seen)
	switch v.Step {
	case Nothing:
		return nil
	case Unmark:
		return s.unmark(ctx, c, v)
	case Mark:
		t.kept[c.UID] = &memory{since: now}
		return s.mark(ctx, now, c, v)
	}
	if m == nil {
		m = &memory{since: now}
	}
	m.verdict = m.held(now, v)
	o := orphaned{claim: c, seen: seen, memory: m}
	t.keep(o)
	switch m.verdict.Step {
	case Snapshot, Delete:
		t.due = append(t.due, o)
	case Report, Blocked:
		s.tell(o)
	}
	return nil
}

// keep keeps an orphan, and what is remembered of it.
func (t *turn) keep(o orphaned) {
	t.kept[o.claim.UID] = o.memory
	if !o.memory.verdict.Since.IsZero() {
		t.orphans = append(t.orphans, o)
	}
}

// act takes the steps that are due, as many as a sweep may. Those come first that
// have failed least, then those that were left behind first: however many fail,
// and however often, none waits for ever.
func (s *Sweeper) act(ctx context.Context, t *turn) error {
	slices.SortFunc(t.due, func(a, b orphaned) int {
		return cmp.Or(
			cmp.Compare(a.memory.failed.after, b.memory.failed.after),
			a.memory.verdict.Since.Compare(b.memory.verdict.Since),
			cmp.Compare(a.claim.UID, b.claim.UID),
		)
	})
	left := map[Step]int{Snapshot: snapshotsEach, Delete: deletionsEach}
	var failed []error
	for _, o := range t.due {
		if step := o.memory.verdict.Step; left[step] > 0 && ctx.Err() == nil {
			left[step]--
			failed = append(failed, s.take(ctx, o, step))
		}
	}
	return errors.Join(failed...)
}

// take takes a step, and puts it off where it fails.
func (s *Sweeper) take(ctx context.Context, o orphaned, step Step) error {
	now := s.Clock.Now()
	var err error
	if step == Snapshot {
		err = s.copy(ctx, o)
	} else {
		err = s.retire(ctx, now, o)
	}
	var refused *refusedError
	switch {
	case err == nil:
		o.memory.failed = failure{}
		return nil
	case ctx.Err() != nil: // the manager ends
		return nil
	case !errors.As(err, &refused):
		o.memory.putOff(now, "it cannot go yet: "+err.Error())
		s.tell(o)
		return claimError(o.claim, err)
	}
	o.memory.putOff(now, refused.why)
	if !refused.otherwise {
		s.tell(o)
	}
	return nil
}

// settle shows what a whole sweep has found.
func (s *Sweeper) settle(t *turn) {
	claims, bytes, blocked := s.instruments.count.Count(), s.instruments.bytes.Count(), s.instruments.blocked.Count()
	state := make(map[types.UID]string, len(t.orphans))
	for _, o := range t.orphans {
		state[o.claim.UID] = o.memory.verdict.Why
		claims.Add(1, o.claim.Namespace)
		bytes.Add(float64(o.claim.Status.Capacity.Storage().Value()), o.claim.Namespace)
		if o.memory.stuck() {
			blocked.Add(1, o.claim.Namespace)
		} else {
			blocked.Add(0, o.claim.Namespace)
		}
	}
	for _, count := range []*tally.Count{claims, bytes, blocked} {
		count.Show()
	}
	s.memories = t.kept
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// livePolicies are the policies as the API server has them. One that cannot be made
// ready holds nothing, and could be the one that keeps a claim: unread says so.
func (s *Sweeper) livePolicies(ctx context.Context) (ready []*policy.Policy, unread string, err error) {
	var list v1alpha1.StoragePolicyList
	if err := s.World.Live.List(ctx, &list); err != nil {
		return nil, "", fmt.Errorf("read StoragePolicies: %w", err)
	}
	for i := range list.Items {
		of := &list.Items[i]
		p, errs := policy.Compile(of)
		switch {
		case p != nil:
			ready = append(ready, p)
		case of.Spec.Orphans != nil || of.Spec.Guardrails != nil && of.Spec.Guardrails.Deletion != nil:
			unread = fmt.Sprintf("StoragePolicy %q, which may keep it, is not valid: %v; put it right or take it away", of.Name, errs.ToAggregate())
		}
	}
	policy.Sort(ready)
	return ready, unread, nil
}
