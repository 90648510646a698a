package world

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// Snapshots are all snapshots of the cluster, as the informer has them, and none
// where the cluster knows no snapshots. They are only to be read.
func (w *World) Snapshots(ctx context.Context) ([]snapshotv1.VolumeSnapshot, error) {
	there, err := w.Index.Begin(ctx, w.Now())
	if err != nil || !there {
		return nil, err
	}
	var list snapshotv1.VolumeSnapshotList
	if err := w.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return list.Items, nil
}

// ReadySnapshots are the ready snapshots of a claim by name that are not on their
// way out, and none where the cluster knows no snapshots.
func (w *World) ReadySnapshots(ctx context.Context, namespace, claim string) ([]snapshotv1.VolumeSnapshot, error) {
	there, err := w.Index.Begin(ctx, w.Now())
	if err != nil || !there {
		return nil, err
	}
	var list snapshotv1.VolumeSnapshotList
	if err := w.Cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{snapshots.ByClaim: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list snapshots of claim %s/%s: %w", namespace, claim, err)
	}
	var ready []snapshotv1.VolumeSnapshot
	for i := range list.Items {
		s := &list.Items[i]
		if s.DeletionTimestamp != nil || !IsReady(s) {
			continue
		}
		group, err := w.GroupSnapshot(ctx, namespace, copies.GroupOf(s))
		if err != nil {
			return nil, err
		}
		if group == nil || group.DeletionTimestamp == nil {
			ready = append(ready, *s)
		}
	}
	return ready, nil
}

// IsReady says whether a claim can be made from a snapshot.
func IsReady(s *snapshotv1.VolumeSnapshot) bool {
	return s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
}

// Members are the snapshots of a VolumeGroupSnapshot, as the informer has them.
// They are only to be read.
func (w *World) Members(ctx context.Context, namespace, group string) ([]snapshotv1.VolumeSnapshot, error) {
	there, err := w.Index.Begin(ctx, w.Now())
	if err != nil || !there {
		return nil, err
	}
	var list snapshotv1.VolumeSnapshotList
	if err := w.Cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{snapshots.ByGroup: group}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the members of VolumeGroupSnapshot %s/%s: %w", namespace, group, err)
	}
	return list.Items, nil
}

// GroupSnapshot is a VolumeGroupSnapshot by its name; nil where there is none, no
// name, or the cluster does not have the kind. It is only to be read.
func (w *World) GroupSnapshot(ctx context.Context, namespace, name string) (*groupv1.VolumeGroupSnapshot, error) {
	if name == "" {
		return nil, nil
	}
	group := &groupv1.VolumeGroupSnapshot{}
	if there, err := w.look(ctx, "VolumeGroupSnapshot", types.NamespacedName{Namespace: namespace, Name: name}, group); err != nil || !there {
		return nil, err
	}
	return group, nil
}

// GroupClass is the class of a VolumeGroupSnapshot; nil where it has none yet, or
// there is none of its name. It is only to be read.
func (w *World) GroupClass(ctx context.Context, group *groupv1.VolumeGroupSnapshot) (*groupv1.VolumeGroupSnapshotClass, error) {
	name := group.Spec.VolumeGroupSnapshotClassName
	if name == nil || *name == "" {
		return nil, nil
	}
	class := &groupv1.VolumeGroupSnapshotClass{}
	if there, err := w.look(ctx, "VolumeGroupSnapshotClass", types.NamespacedName{Name: *name}, class); err != nil || !there {
		return nil, err
	}
	return class, nil
}
