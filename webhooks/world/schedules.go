package world

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
)

// HasSnapshots says whether the cluster knows VolumeSnapshots.
func (w *World) HasSnapshots(ctx context.Context) (bool, error) { return w.Index.Begin(ctx, w.Now()) }

// Schedules are the SnapshotSchedules of a namespace, as the informer has them.
// They are only to be read.
func (w *World) Schedules(ctx context.Context, namespace string) ([]v1alpha1.SnapshotSchedule, error) {
	var list v1alpha1.SnapshotScheduleList
	if err := w.Cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list SnapshotSchedules of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// LiveSchedules are the SnapshotSchedules of a namespace, as the API server has
// them. They are read once in a while: asked is false where that was a moment ago.
func (w *World) LiveSchedules(ctx context.Context, namespace string) (schedules []v1alpha1.SnapshotSchedule, asked bool, err error) {
	key := "schedules of namespace " + namespace
	if w.absent.has(key, w.Now()) {
		return nil, false, nil
	}
	var list v1alpha1.SnapshotScheduleList
	if err := w.Live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, false, fmt.Errorf("read SnapshotSchedules of namespace %s: %w", namespace, err)
	}
	w.absent.add(key, w.Now())
	return list.Items, true, nil
}
