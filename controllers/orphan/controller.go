package orphan

import (
	"context"
	"errors"
	"fmt"
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

// What is refused is tried again after a minute, then after twice the time before,
// up to an hour.
const (
	retryFirst = time.Minute
	retryMost  = time.Hour
)

// Kinds says whether the cluster serves VolumeSnapshots.
type Kinds interface{ Served(snapshots.Family) bool }

// Options are what a Sweeper works with.
type Options struct {
	Client   client.Client
	World    *world.World // its Live reader is asked before anything is deleted
	Kinds    Kinds
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
	told        map[types.UID]string
	refusals    map[types.UID]refusal

	mu    sync.Mutex
	state map[types.UID]string // what the audit writes into statuses
}

// refusal remembers that something was refused. It is not kept over a restart:
// then it is tried once more, and refused once more.
type refusal struct {
	why   string
	after time.Duration
	next  time.Time
}

// New makes a Sweeper and registers its metrics.
func New(o Options) *Sweeper {
	s := &Sweeper{
		Options: o, instruments: newInstruments(), uses: &uses{clock: o.Clock, at: map[client.ObjectKey]time.Time{}}, since: o.Clock.Now(),
		told: map[types.UID]string{}, refusals: map[types.UID]refusal{}, state: map[types.UID]string{},
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
	t := &turn{
		eyes: look(s.World.Cache, policies), state: map[types.UID]string{},
		claims: s.instruments.count.Count(), bytes: s.instruments.bytes.Count(), blocked: s.instruments.blocked.Count(),
	}
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
			failed = append(failed, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err))
		}
	}
	s.uses.keep(func(key client.ObjectKey) bool { return there[key] })
	s.forget(t.state)
	for _, count := range []*tally.Count{t.claims, t.bytes, t.blocked} {
		count.Show()
	}
	return errors.Join(failed...)
}

// turn is one sweep.
type turn struct {
	eyes                   *eyes
	snapshots, deleted     int // so many were asked for
	state                  map[types.UID]string
	claims, bytes, blocked *tally.Count
}

// forget drops what is remembered of claims that are no orphans any more.
func (s *Sweeper) forget(state map[types.UID]string) {
	for uid := range s.told {
		if _, is := state[uid]; !is {
			delete(s.told, uid)
			delete(s.refusals, uid)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// one looks at one claim and does what is due.
func (s *Sweeper) one(ctx context.Context, t *turn, c *corev1.PersistentVolumeClaim) error {
	now := s.Clock.Now()
	seen, err := s.sight(ctx, now, t.eyes, c)
	if err != nil {
		return err
	}
	v := Decide(now, seen)
	if !v.Since.IsZero() {
		v = s.held(now, c.UID, v)
		t.count(c, v)
		t.state[c.UID] = v.Why
	}
	switch v.Step {
	case Mark:
		return s.mark(ctx, now, c, v)
	case Unmark:
		return s.unmark(ctx, c, v)
	case Snapshot:
		if t.snapshots == snapshotsEach {
			return nil
		}
		t.snapshots++
		return s.copy(ctx, now, t, seen)
	case Delete:
		if t.deleted == deletionsEach {
			return nil
		}
		t.deleted++
		return s.retire(ctx, now, t, c)
	case Report, Blocked:
		s.tell(c, v)
	}
	return nil
}

// held puts a step off that was refused not long ago.
func (s *Sweeper) held(now time.Time, claim types.UID, v Verdict) Verdict {
	if r, is := s.refusals[claim]; is && r.next.After(now) && (v.Step == Snapshot || v.Step == Delete) {
		v.Step, v.Why = Blocked, r.why
	}
	return v
}

// count counts an orphan for the metrics.
func (t *turn) count(c *corev1.PersistentVolumeClaim, v Verdict) {
	t.claims.Add(1, c.Namespace)
	t.bytes.Add(float64(c.Status.Capacity.Storage().Value()), c.Namespace)
	blocked := 0.0 // told too
	if v.Step == Blocked {
		blocked = 1
	}
	t.blocked.Add(blocked, c.Namespace)
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
