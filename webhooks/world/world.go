package world

import (
	"context"
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// Annotations of Kubernetes on classes and claims.
const (
	defaultClass    = "storageclass.kubernetes.io/is-default-class"
	oldDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
	oldClassOfClaim = corev1.BetaStorageClassAnnotation
	defaultIsMarked = "true"
)

// World reads the cluster.
type World struct {
	// Cache reads from informers.
	Cache client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Index is the informer of snapshots.
	Index *snapshots.Index
	Clock clock.PassiveClock

	policies compiled
	absent   absences // classes and kinds
}

// Of is the world as a manager's informers see it.
func Of(mgr ctrl.Manager, index *snapshots.Index) *World {
	return &World{Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Index: index, Clock: clock.RealClock{}}
}

// Now is the time to judge by.
func (w *World) Now() time.Time { return w.Clock.Now() }

// get reads from the cache, and live once where the cache has nothing.
func (w *World) get(ctx context.Context, key types.NamespacedName, o client.Object) error {
	err := w.Cache.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return w.Live.Get(ctx, key, o)
	}
	return err
}

// Namespace is a namespace; "" is the one of cluster-scoped objects.
func (w *World) Namespace(ctx context.Context, name string) (policy.Namespace, error) {
	if name == "" {
		return policy.Namespace{}, nil
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := w.get(ctx, types.NamespacedName{Name: name}, o); err != nil {
		return policy.Namespace{}, fmt.Errorf("look up namespace %s: %w", name, err)
	}
	return policy.Namespace{Name: name, Labels: o.Labels, Terminating: o.DeletionTimestamp != nil}, nil
}

// Class is a class by its name; nil where there is none. It is only to be read.
func (w *World) Class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	class := &storagev1.StorageClass{}
	if there, err := w.look(ctx, "StorageClass", types.NamespacedName{Name: name}, class); err != nil || !there {
		return nil, err
	}
	return class, nil
}

// AttributesClass is the VolumeAttributesClass that a claim names; nil where it
// names none, there is no such class, or the cluster is too old for the kind.
// It is only to be read.
func (w *World) AttributesClass(ctx context.Context, name *string) (*storagev1.VolumeAttributesClass, error) {
	if name == nil || *name == "" {
		return nil, nil
	}
	class := &storagev1.VolumeAttributesClass{}
	if there, err := w.look(ctx, "VolumeAttributesClass", types.NamespacedName{Name: *name}, class); err != nil || !there {
		return nil, err
	}
	return class, nil
}

// look looks a class or a group of snapshots up. One that the informer does not
// have is read live, and not again for a while where there is none, nor where the
// cluster does not have the kind: what names a missing one is tried again and again.
func (w *World) look(ctx context.Context, kind string, key types.NamespacedName, o client.Object) (there bool, err error) {
	kindAbsent, absent := "the kind "+kind, kind+" "+key.String()
	if w.absent.has(kindAbsent, w.Now()) {
		return false, nil
	}
	err = w.Cache.Get(ctx, key, o, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		if w.absent.has(absent, w.Now()) {
			return false, nil
		}
		err = w.Live.Get(ctx, key, o)
	}
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		w.absent.add(absent, w.Now())
		return false, nil
	case meta.IsNoMatchError(err):
		w.absent.add(kindAbsent, w.Now())
		return false, nil
	}
	return false, fmt.Errorf("look up %s %s: %w", kind, strings.TrimPrefix(key.String(), "/"), err)
}

// DefaultClass is the class that the API server gives to claims that name none:
// of those marked as default the newest, then the first by name.
// https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass
func (w *World) DefaultClass(ctx context.Context) (*storagev1.StorageClass, error) {
	var list storagev1.StorageClassList
	if err := w.Cache.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list StorageClasses: %w", err)
	}
	var found *storagev1.StorageClass
	for i := range list.Items {
		c := &list.Items[i]
		if c.Annotations[defaultClass] != defaultIsMarked && c.Annotations[oldDefaultClass] != defaultIsMarked {
			continue
		}
		if found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp) ||
			found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name {
			found = c
		}
	}
	return found, nil
}

// ClassNameOf is the class that a claim names itself: by its field, or by the
// annotation that was there before. Absent and "" are not the same.
func ClassNameOf(annotations map[string]string, spec *corev1.PersistentVolumeClaimSpec) *string {
	if name, ok := annotations[oldClassOfClaim]; ok {
		return &name
	}
	return spec.StorageClassName
}

// ClassOfClaim resolves the class of a claim.
//
//	names one    that; class is nil where it does not exist
//	names ""     static: no class
//	names none   the default class; static where there is none
func (w *World) ClassOfClaim(ctx context.Context, annotations map[string]string, spec *corev1.PersistentVolumeClaimSpec) (name string, class *storagev1.StorageClass, err error) {
	switch named := ClassNameOf(annotations, spec); {
	case named == nil:
		class, err = w.DefaultClass(ctx)
		if class != nil {
			name = class.Name
		}
		return name, class, err
	case *named == "":
		return "", nil, nil
	default:
		class, err = w.Class(ctx, *named)
		return *named, class, err
	}
}

// Claim is a claim by its name; nil where there is none, or no name.
func (w *World) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if name == "" { // the snapshot-controller leaves it empty where it finds no volume
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := w.get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, claim)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up claim %s/%s: %w", namespace, name, err)
	}
	return claim, nil
}

// Claims are the claims of a namespace, as the informer has them. They are only
// to be read.
func (w *World) Claims(ctx context.Context, namespace string) ([]corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := w.Cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list claims of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// NewestCut is when the newest of the snapshots was cut that can be of this
// very claim: a snapshot names its claim, and a claim that was made again under
// the name has none of the old one's data. Zero: there is none.
func NewestCut(snapshots []snapshotv1.VolumeSnapshot, claim *corev1.PersistentVolumeClaim) time.Time {
	var newest time.Time
	for i := range snapshots {
		if cut := copies.At(&snapshots[i]); !cut.Before(claim.CreationTimestamp.Time) && cut.After(newest) {
			newest = cut
		}
	}
	return newest
}

// StatefulSet is a set by its name; nil where there is none.
func (w *World) StatefulSet(ctx context.Context, namespace, name string) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := w.get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, set)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up StatefulSet %s/%s: %w", namespace, name, err)
	}
	return set, nil
}

// StatefulSets are the sets of a namespace, as the informer has them. They are
// only to be read.
func (w *World) StatefulSets(ctx context.Context, namespace string) ([]appsv1.StatefulSet, error) {
	var list appsv1.StatefulSetList
	if err := w.Cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list StatefulSets of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// Budgeted says whether a PodDisruptionBudget selects Pods with these labels.
func (w *World) Budgeted(ctx context.Context, namespace string, pod map[string]string) (bool, error) {
	var list policyv1.PodDisruptionBudgetList
	if err := w.Cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list PodDisruptionBudgets of namespace %s: %w", namespace, err)
	}
	for _, b := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod)) {
			return true, nil
		}
	}
	return false, nil
}

// defaultSnapshotClass marks the class of snapshots that name none.
const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

// SnapshotClass is the class that a snapshot names, or the default class of the
// claim's driver; nil where there is none.
func (w *World) SnapshotClass(ctx context.Context, name *string, driver string) (*snapshotv1.VolumeSnapshotClass, error) {
	if name != nil && *name != "" {
		class := &snapshotv1.VolumeSnapshotClass{}
		err := w.get(ctx, types.NamespacedName{Name: *name}, class)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look up VolumeSnapshotClass %s: %w", *name, err)
		}
		return class, nil
	}
	var list snapshotv1.VolumeSnapshotClassList
	if err := w.Cache.List(ctx, &list); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list VolumeSnapshotClasses: %w", err)
	}
	for i := range list.Items {
		if c := &list.Items[i]; c.Driver == driver && c.Annotations[defaultSnapshotClass] == defaultIsMarked {
			return c, nil
		}
	}
	return nil, nil
}
