package retention

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// Add makes retention part of a manager: the reconciler of schedules, and for
// each kind of contents one that does what their marks say.
func Add(mgr ctrl.Manager, kinds *snapshots.Kinds, clk clock.PassiveClock, registry prometheus.Registerer) error {
	marked, err := markedContents(mgr)
	if err != nil {
		return err
	}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), marked, mgr.GetEventRecorder("holdfast"), clk, registry)
	r.GroupsServed = func() bool { return kinds.Served(snapshots.Group) }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.PersistentVolumeClaim{}, foreignSource, namespaceOfSource); err != nil {
		return fmt.Errorf("index claims by the namespace of their source: %w", err)
	}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("retention").
		For(&v1alpha1.SnapshotSchedule{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim), builder.WithPredicates(claimMoves(kinds))).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(predicate.NewPredicateFuncs(deleting))).
		WatchesRawSource(kinds.Changes(func(ctx context.Context) []ctrl.Request { return r.in(ctx, "") })).
		Build(r)
	if err != nil {
		return fmt.Errorf("add the retention of snapshots: %w", err)
	}
	return errors.Join(
		kinds.Watch(snapshots.Single, func() error {
			return errors.Join(
				c.Watch(source.Kind(mgr.GetCache(), &snapshotv1.VolumeSnapshot{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofSnapshot))),
				c.Watch(source.Kind(marked, &snapshotv1.VolumeSnapshotContent{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofContent))),
			)
		}),
		kinds.Watch(snapshots.Group, func() error {
			return c.Watch(source.Kind(mgr.GetCache(), &groupv1.VolumeGroupSnapshot{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofGroup)))
		}),
		addFinisher(mgr, kinds, marked, r, single, func(c controller.Controller) error {
			return errors.Join(
				c.Watch(source.Kind(marked, &snapshotv1.VolumeSnapshotContent{}, &handler.TypedEnqueueRequestForObject[*snapshotv1.VolumeSnapshotContent]{})),
				c.Watch(source.Kind(mgr.GetCache(), &snapshotv1.VolumeSnapshot{}, whenGone(contentOf))),
			)
		}),
		addFinisher(mgr, kinds, marked, r, group, func(c controller.Controller) error {
			return c.Watch(source.Kind(marked, &groupv1.VolumeGroupSnapshotContent{}, &handler.TypedEnqueueRequestForObject[*groupv1.VolumeGroupSnapshotContent]{}))
		}),
	)
}

// markedContents is a cache of contents with marks alone: a cluster has a content
// for each snapshot, and none of the others is asked about.
func markedContents(mgr ctrl.Manager) (cache.Cache, error) {
	has, err := labels.NewRequirement(v1alpha1.LabelContents, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select contents with marks: %w", err)
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultLabelSelector: labels.NewSelector().Add(*has), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("watch contents with marks: %w", err)
	}
	return c, mgr.Add(c)
}

// addFinisher adds a finisher, which begins when its kind comes.
func addFinisher(mgr ctrl.Manager, kinds *snapshots.Kinds, marked cache.Cache, r *Reconciler, k kind, watch func(controller.Controller) error) error {
	c, err := controller.New("contents-"+k.name, mgr, controller.Options{
		Reconciler: &finisher{kind: k, client: r.Client, marked: marked, live: r.Live, clock: r.Clock},
	})
	if err != nil {
		return fmt.Errorf("add the end of contents: %w", err)
	}
	return kinds.Watch(k.family, func() error { return watch(c) })
}

// whenGone asks for the content of a snapshot that has gone.
func whenGone(contentOf func(*snapshotv1.VolumeSnapshot) string) handler.TypedEventHandler[*snapshotv1.VolumeSnapshot, ctrl.Request] {
	return handler.TypedFuncs[*snapshotv1.VolumeSnapshot, ctrl.Request]{
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*snapshotv1.VolumeSnapshot], queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Name: contentOf(e.Object)}})
		},
	}
}

func deleting(o client.Object) bool { return o.GetDeletionTimestamp() != nil }

// claimMoves picks what a claim can do to copies: be made from one, get its
// volume, be deleted, go.
func claimMoves(kinds *snapshots.Kinds) predicate.Predicate {
	served := func() bool { return kinds.Served(snapshots.Single) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			c, is := e.Object.(*corev1.PersistentVolumeClaim)
			return is && served() && filledFrom(c).Name != ""
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, is := e.ObjectOld.(*corev1.PersistentVolumeClaim)
			c, too := e.ObjectNew.(*corev1.PersistentVolumeClaim)
			return is && too && served() && (old.Status.Phase != c.Status.Phase || deleting(old) != deleting(c))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return served() },
	}
}

// ofClaim are the schedules with copies of a claim, and that of the copy that it
// is made from.
func (r *Reconciler) ofClaim(ctx context.Context, o client.Object) []ctrl.Request {
	claim, is := o.(*corev1.PersistentVolumeClaim)
	if !is {
		return nil
	}
	var made snapshotv1.VolumeSnapshotList
	if err := r.Client.List(ctx, &made, client.InNamespace(claim.Namespace), client.MatchingFields{snapshots.ByClaim: claim.Name}, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List the snapshots of a claim", "namespace", claim.Namespace, "name", claim.Name)
	}
	if of := sourceOf(claim); of.Name != "" {
		source := snapshotv1.VolumeSnapshot{}
		if err := r.Client.Get(ctx, of, &source); err == nil {
			made.Items = append(made.Items, source)
		} // else it has gone, or is not there yet: then its schedule looks at it when it comes
	}
	requests := sets.New[ctrl.Request]()
	for i := range made.Items {
		requests.Insert(r.ofSnapshot(ctx, &made.Items[i])...)
	}
	return requests.UnsortedList()
}

// ofSnapshot are the schedules that a snapshot may be a copy of.
func (r *Reconciler) ofSnapshot(ctx context.Context, s *snapshotv1.VolumeSnapshot) []ctrl.Request {
	return r.named(ctx, s.Namespace, s.Labels[v1alpha1.LabelSchedule])
}

// ofGroup are those that a group may be of.
func (r *Reconciler) ofGroup(ctx context.Context, g *groupv1.VolumeGroupSnapshot) []ctrl.Request {
	return r.named(ctx, g.Namespace, g.Labels[v1alpha1.LabelSchedule])
}

// ofContent is the schedule that left a content behind.
func (r *Reconciler) ofContent(ctx context.Context, c *snapshotv1.VolumeSnapshotContent) []ctrl.Request {
	return r.named(ctx, c.Spec.VolumeSnapshotRef.Namespace, c.Labels[v1alpha1.LabelSchedule])
}

// named is the schedule whose name is this in a label. Where it has gone, what it
// left behind is counted under the label.
func (r *Reconciler) named(ctx context.Context, namespace, label string) []ctrl.Request {
	if label == "" {
		return nil
	}
	for _, other := range r.in(ctx, namespace) {
		if copies.LabelValue(other.Name) == label {
			return []ctrl.Request{other}
		}
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: label}}}
}

// ofNamespace are the schedules of a namespace that is being deleted.
func (r *Reconciler) ofNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	return r.in(ctx, o.GetName())
}

// in are all schedules of a namespace; empty: of the cluster.
func (r *Reconciler) in(ctx context.Context, namespace string) []ctrl.Request {
	var list v1alpha1.SnapshotScheduleList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List the schedules", "namespace", namespace)
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
