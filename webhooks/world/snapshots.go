package world

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// ReadySnapshots are the ready snapshots of a claim by name, and none where the
// cluster knows no snapshots.
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
		if s := &list.Items[i]; s.DeletionTimestamp == nil && IsReady(s) {
			ready = append(ready, *s)
		}
	}
	return ready, nil
}

// IsReady says whether a claim can be made from a snapshot.
func IsReady(s *snapshotv1.VolumeSnapshot) bool {
	return s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
}
