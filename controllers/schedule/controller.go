package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// lookAtLeast is after how long a schedule is looked at again whatever the plan
// says: a clock that was set forward must not make a run late.
const lookAtLeast = 10 * time.Minute

// conflictWait is how long the informer is given to show what somebody else wrote.
const conflictWait = time.Second

// workers plan and create at once. What they ask for is counted before it is
// created, so that the caps hold. One that waits for hooks and for the cut does
// nothing else meanwhile, so there are more than planning alone would need, and
// quiescing of them at most wait so: hooks that hang are not to stop schedules
// without hooks. A schedule that finds no place asks for nothing, and looks again
// after placeWait.
const (
	workers   = 16
	quiescing = 12
	placeWait = 5 * time.Second
)

// Reconciler takes the copies that SnapshotSchedules are due.
type Reconciler struct {
	client client.Client // reads from informers
	live   client.Reader // reads from the API server
	kinds  *snapshots.Kinds
	clock  clock.PassiveClock
	events events.EventRecorder
	limits Limits
	hooks  *hooks.Runner // nil: they are not enabled
	places chan struct{} // of schedules with hooks

	ledger    *ledger
	unwritten unwritten
	metrics   *instruments
}

// Options are what a Reconciler works with. All but Hooks must be given.
type Options struct {
	Kinds *snapshots.Kinds
	// Hooks runs the hooks of schedules; nil: a schedule with hooks copies nothing.
	Hooks    *hooks.Runner
	Clock    clock.PassiveClock
	Limits   Limits
	Registry prometheus.Registerer
}

// New makes the reconciler of a manager and registers its metrics.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), kinds: o.Kinds, clock: o.Clock, limits: o.Limits, hooks: o.Hooks, places: make(chan struct{}, quiescing),
		events: mgr.GetEventRecorder("holdfast"), ledger: newLedger(), metrics: newInstruments(),
	}
	o.Registry.MustRegister(append(r.metrics.all(), &coverage{client: mgr.GetClient(), elected: mgr.Elected()})...)
	return r
}

// Reconcile does what one schedule is due, and writes its status where it differs,
// by progress alone only after a while.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.SnapshotSchedule{}
	err := r.client.Get(ctx, req.NamespacedName, s)
	switch {
	case apierrors.IsNotFound(err):
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read SnapshotSchedule %s: %w", req, err)
	case s.DeletionTimestamp != nil: // what it has made is retention's now, and nobody waits for its next copy
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	leaving, err := r.leaving(ctx, s.Namespace)
	if err != nil || leaving { // nothing can be created there any more
		return ctrl.Result{}, err
	}
	now := r.clock.Now()
	ready, errs := Compile(&s.Spec)
	switch {
	case len(errs) > 0:
		was := meta.IsStatusConditionFalse(s.Status.Conditions, v1alpha1.ConditionValid)
		status := ReportInvalid(now, s.Status, s.Generation, errs)
		return r.write(ctx, s, status, 0, func() {
			r.metrics.setFailing(s, status)
			if !was {
				r.tellInvalid(s, errs)
			}
		})
	case !r.kinds.Served(snapshots.Single):
		return r.idle(ctx, now, s, ready, ReportKindsMissing(now, s.Status, s.Generation))
	case s.Spec.Consistency == v1alpha1.GroupCopies && !r.kinds.Served(snapshots.Group):
		return r.idle(ctx, now, s, ready, ReportGroupKindsMissing(now, s.Status, s.Generation))
	case s.Spec.Hooks != nil && r.hooks == nil:
		return r.idle(ctx, now, s, ready, ReportHooksNotEnabled(now, s.Status, s.Generation))
	}
	mayAsk := true
	if s.Spec.Hooks != nil {
		select {
		case r.places <- struct{}{}:
			defer func() { <-r.places }()
		default:
			mayAsk = false
		}
	}
	found, untended, err := r.run(ctx, now, s, ready, mayAsk)
	if err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.report(ctx, now, s, ready, found)
	if err = errors.Join(err, untended); err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// report writes what was found, and tells it. Progress alone is written after a
// while.
func (r *Reconciler) report(ctx context.Context, now time.Time, s *v1alpha1.SnapshotSchedule, ready *Ready, found Found) (ctrl.Result, error) {
	status, again := Report(now, s.Status, s.Generation, found), r.wait(now, found.Plan.NextLook)
	if onlyProgress(s.Spec.CatchUp, s.Status, status) {
		if wait := r.unwritten.wait(client.ObjectKeyFromObject(s), now); wait > 0 {
			r.metrics.set(now, s, status, ready)
			return ctrl.Result{RequeueAfter: min(again, wait)}, nil
		}
	}
	return r.write(ctx, s, status, again, func() {
		r.tell(s, status, found)
		r.metrics.set(now, s, status, ready)
	})
}

// idle writes the status of a schedule that is due and can do nothing. Its metrics
// go on: whoever is alerted by the age of the last copy must be, also by a leader
// that has only just begun.
func (r *Reconciler) idle(ctx context.Context, now time.Time, s *v1alpha1.SnapshotSchedule, ready *Ready, status v1alpha1.SnapshotScheduleStatus) (ctrl.Result, error) {
	return r.write(ctx, s, status, 0, func() { r.metrics.set(now, s, status, ready) })
}

// run plans, and asks for the copies that are due, if it may. untended is what could
// not be done for groups: it is tried again, and the rest is told all the same.
func (r *Reconciler) run(ctx context.Context, now time.Time, s *v1alpha1.SnapshotSchedule, ready *Ready, mayAsk bool) (found Found, untended, err error) {
	key := client.ObjectKeyFromObject(s)
	candidates, excluded, labelled, err := r.claims(ctx, s, ready.Target)
	if err != nil {
		return Found{}, nil, err
	}
	groups, err := r.groups(ctx, s)
	if err != nil {
		return Found{}, nil, err
	}
	seen := Observed{
		Namespace: s.Namespace, Name: s.Name, UID: s.UID, Created: s.CreationTimestamp.Time,
		RunToken: s.Annotations[v1alpha1.AnnotationRunNow], Spec: s.Spec, Status: s.Status,
		Cron: ready.Cron, Candidates: candidates,
	}
	if NeedsPods(now, seen) {
		if seen.Pods, err = r.pods(ctx, s.Namespace); err != nil {
			return Found{}, nil, err
		}
	}
	var plan Plan
	// What is planned is counted before the next one plans.
	err = r.ledger.plan(now, func(l *ledger) error {
		if seen, err = r.observe(ctx, now, s, seen, groups, l); err != nil {
			return err
		}
		if plan = Decide(now, seen, r.limits); plan.asks() && !mayAsk {
			plan.Create, plan.Groups, plan.NextLook = nil, nil, now.Add(placeWait)
		}
		l.book(key, now, plan.Create)
		l.bookGroups(key, now, plan.Groups)
		return nil
	})
	if err != nil {
		return Found{}, nil, err
	}
	refusals, err := r.create(ctx, s, plan)
	if err != nil {
		return Found{}, nil, err
	}
	done := plan
	if plan.asks() {
		seen = seen.Asked(now, plan, refusals)
		if plan = Decide(now, seen, r.limits); plan.asks() { // what was refused made room
			plan.NextLook = now
		}
	}
	until, untended := r.tend(ctx, now, s, done, groups, labelled)
	if !until.IsZero() && (plan.NextLook.IsZero() || until.Before(plan.NextLook)) {
		plan.NextLook = until
	}
	return Found{Seen: seen, Plan: plan, Excluded: excluded, Refused: stillRefused(seen, now)}, untended, nil
}

// wait is after how long to look again.
func (r *Reconciler) wait(now, next time.Time) time.Duration {
	if next.IsZero() {
		return lookAtLeast
	}
	return min(max(next.Sub(now)-r.clock.Since(now), time.Millisecond), lookAtLeast)
}

// write writes a status where it differs, and then tells. An object that changed
// meanwhile is looked at again: the conditions of others must not be lost.
func (r *Reconciler) write(ctx context.Context, s *v1alpha1.SnapshotSchedule, status v1alpha1.SnapshotScheduleStatus, again time.Duration, tell func()) (ctrl.Result, error) {
	if !equality.Semantic.DeepEqual(s.Status, status) {
		changed := s.DeepCopy()
		changed.Status = status
		err := r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(asStored(s), client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsNotFound(err):
			return ctrl.Result{}, nil
		case apierrors.IsConflict(err):
			return ctrl.Result{RequeueAfter: conflictWait}, nil
		case err != nil:
			return ctrl.Result{}, fmt.Errorf("write the status of SnapshotSchedule %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	r.unwritten.written(client.ObjectKeyFromObject(s))
	tell()
	return ctrl.Result{RequeueAfter: again}, nil
}

// asStored is a schedule as a patch has to see it: counts that were never written
// are absent, which Go's types cannot tell from 0, and a 0 would not be written.
func asStored(s *v1alpha1.SnapshotSchedule) *v1alpha1.SnapshotSchedule {
	if s.Status.ObservedGeneration != 0 {
		return s
	}
	const absent = -1
	before := s.DeepCopy()
	before.Status.MissedSlots, before.Status.ClaimCount = absent, absent
	before.Status.ReadyCount, before.Status.PendingCount, before.Status.FailedCount = absent, absent, absent
	return before
}

// leaving says whether a namespace is being deleted.
func (r *Reconciler) leaving(ctx context.Context, name string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.client.Get(ctx, types.NamespacedName{Name: name}, ns); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("look up namespace %s: %w", name, err)
	}
	return ns.DeletionTimestamp != nil, nil
}

// forget lets go of what is kept of a schedule that is gone, or going.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.ledger.forget(key)
	r.unwritten.written(key)
	r.metrics.forget(key)
	if r.hooks != nil {
		r.hooks.Forget(key)
	}
}
