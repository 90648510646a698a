package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// settle is how long changes around a schedule are gathered before it is looked
// at: a run of a thousand claims is thousands of changes, and a look costs with
// the number of claims.
const settle = time.Second

// After a look that failed it is looked again after ever longer times. They are
// bounded well below lateAfter: whatever failed, the next run is due at its time.
const (
	failedFirst = 5 * time.Millisecond
	failedMost  = 30 * time.Second
)

// patience is how long to wait after looks that failed.
func patience() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](failedFirst, failedMost)
}

// Add makes the reconciler part of a manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("schedule").
		For(&v1alpha1.SnapshotSchedule{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&corev1.PersistentVolumeClaim{}, gathered(r.besides), builder.WithPredicates(predicate.Funcs{UpdateFunc: claimChanged})).
		Watches(&corev1.PersistentVolume{}, gathered(r.ofVolume), builder.WithPredicates(predicate.Funcs{UpdateFunc: volumeChanged})).
		WatchesRawSource(r.kinds.Changes(r.everyone)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: patience()}).
		Build(r)
	if err != nil {
		return fmt.Errorf("add the schedules of snapshots: %w", err)
	}
	all := func(ctx context.Context, _ client.Object) []ctrl.Request { return r.everyone(ctx) }
	single := r.kinds.Watch(snapshots.Single, func() error {
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &snapshotv1.VolumeSnapshot{}, r.ofCopies(), predicate.NewPredicateFuncs(labelled))); err != nil {
			return fmt.Errorf("watch VolumeSnapshots: %w", err)
		}
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &snapshotv1.VolumeSnapshotClass{}, gathered(all))); err != nil {
			return fmt.Errorf("watch VolumeSnapshotClasses: %w", err)
		}
		return nil
	})
	return errors.Join(single, r.kinds.Watch(snapshots.Group, func() error {
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &groupv1.VolumeGroupSnapshot{}, gathered(r.ofSnapshot), predicate.NewPredicateFuncs(labelled))); err != nil {
			return fmt.Errorf("watch VolumeGroupSnapshots: %w", err)
		}
		if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &groupv1.VolumeGroupSnapshotClass{}, gathered(all))); err != nil {
			return fmt.Errorf("watch VolumeGroupSnapshotClasses: %w", err)
		}
		return nil
	}))
}

// gathered enqueues what map answers when changes have settled.
func gathered(requests handler.MapFunc) handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range requests(ctx, o) {
			q.AddAfter(r, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// besides are the schedules of an object's namespace that can be acted on: one
// that cannot waits for its spec to change.
func (r *Reconciler) besides(ctx context.Context, o client.Object) []ctrl.Request {
	return r.those(ctx, o.GetNamespace(), func(*v1alpha1.SnapshotSchedule) bool { return true })
}

// ofSnapshot is the schedule that made a snapshot or a group of them.
func (r *Reconciler) ofSnapshot(ctx context.Context, o client.Object) []ctrl.Request {
	label := o.GetLabels()[v1alpha1.LabelSchedule]
	return r.those(ctx, o.GetNamespace(), func(s *v1alpha1.SnapshotSchedule) bool { return copies.LabelValue(s.Name) == label })
}

// ofVolume are the schedules beside the claim that a volume is bound to.
func (r *Reconciler) ofVolume(ctx context.Context, o client.Object) []ctrl.Request {
	v, is := o.(*corev1.PersistentVolume)
	if !is || v.Spec.ClaimRef == nil {
		return nil
	}
	return r.those(ctx, v.Spec.ClaimRef.Namespace, func(*v1alpha1.SnapshotSchedule) bool { return true })
}

// everyone are all schedules, in all namespaces.
func (r *Reconciler) everyone(ctx context.Context) []ctrl.Request {
	return r.those(ctx, "", func(*v1alpha1.SnapshotSchedule) bool { return true })
}

func (r *Reconciler) those(ctx context.Context, namespace string, which func(*v1alpha1.SnapshotSchedule) bool) []ctrl.Request {
	var list v1alpha1.SnapshotScheduleList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List the SnapshotSchedules to wake", "namespace", namespace)
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if s := &list.Items[i]; !knownInvalid(s) && which(s) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return requests
}

// knownInvalid says whether a schedule's status tells of its very spec that it
// cannot be acted on.
func knownInvalid(s *v1alpha1.SnapshotSchedule) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionValid)
	return c != nil && c.Reason == v1alpha1.ReasonInvalidSpec && c.ObservedGeneration == s.Generation
}

// labelled says whether a snapshot may be a schedule's.
func labelled(o client.Object) bool {
	_, is := o.GetLabels()[v1alpha1.LabelSchedule]
	return is
}

// claimChanged says whether a change of a claim can change a plan.
func claimChanged(e event.UpdateEvent) bool {
	old, is := e.ObjectOld.(*corev1.PersistentVolumeClaim)
	now, too := e.ObjectNew.(*corev1.PersistentVolumeClaim)
	return is && too && (old.Status.Phase != now.Status.Phase || old.Spec.VolumeName != now.Spec.VolumeName ||
		(old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) ||
		!maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations))
}

// volumeChanged says whether a change of a PersistentVolume can change a plan.
// Its driver never changes.
func volumeChanged(e event.UpdateEvent) bool {
	old, is := e.ObjectOld.(*corev1.PersistentVolume)
	now, too := e.ObjectNew.(*corev1.PersistentVolume)
	return is && too && (old.Spec.ClaimRef == nil) != (now.Spec.ClaimRef == nil)
}

// ofCopies wakes the schedule of a snapshot, and times those that become ready.
func (r *Reconciler) ofCopies() handler.EventHandler {
	wake := gathered(r.ofSnapshot)
	timed := wake
	timed.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		old, is := e.ObjectOld.(*snapshotv1.VolumeSnapshot)
		now, too := e.ObjectNew.(*snapshotv1.VolumeSnapshot)
		if is && too {
			for _, s := range r.ofSnapshot(ctx, now) {
				r.metrics.becameReady(r.clock.Now(), s.NamespacedName, old, now)
			}
		}
		wake.UpdateFunc(ctx, e, q)
	}
	return timed
}
