package snapshots

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// Names of the indexes, for client.MatchingFields.
const (
	// ByClaim is the name of the claim that a snapshot is of. A namespace may hold
	// thousands of snapshots, and one request may ask for those of each claim.
	ByClaim = "spec.source.persistentVolumeClaimName"
	// BySchedule is the label of the schedule that made a snapshot.
	BySchedule = "metadata.labels[" + v1alpha1.LabelSchedule + "]"
	// ByProgress has the value Uncut for snapshots that a schedule made and that
	// the driver has not cut yet.
	ByProgress = "status.creationTime"
	// ByGroup is the name of the VolumeGroupSnapshot that a snapshot is a member of.
	ByGroup = "status.volumeGroupSnapshotName"
)

// Uncut is the value of the index ByProgress.
const Uncut = "uncut"

// absentFor is how long the kind is not asked for again once it was not there:
// each question is a live one.
const absentFor = 10 * time.Second

// indexes of the informer of VolumeSnapshots.
var indexes = []struct {
	name string
	of   client.IndexerFunc
}{
	{ByClaim, of(func(s *snapshotv1.VolumeSnapshot) (string, bool) {
		if s.Spec.Source.PersistentVolumeClaimName == nil {
			return "", false
		}
		return *s.Spec.Source.PersistentVolumeClaimName, true
	})},
	{BySchedule, of(func(s *snapshotv1.VolumeSnapshot) (string, bool) {
		name, made := s.Labels[v1alpha1.LabelSchedule]
		return name, made
	})},
	{ByProgress, of(func(s *snapshotv1.VolumeSnapshot) (string, bool) {
		_, made := s.Labels[v1alpha1.LabelSchedule]
		return Uncut, made && s.DeletionTimestamp == nil && (s.Status == nil || s.Status.CreationTime == nil)
	})},
	{ByGroup, of(func(s *snapshotv1.VolumeSnapshot) (string, bool) {
		name := copies.GroupOf(s)
		return name, name != ""
	})},
}

// of is an index of snapshots with at most one value each.
func of(value func(*snapshotv1.VolumeSnapshot) (string, bool)) client.IndexerFunc {
	return func(o client.Object) []string {
		s, is := o.(*snapshotv1.VolumeSnapshot)
		if !is {
			return nil
		}
		v, has := value(s)
		if !has {
			return nil
		}
		return []string{v}
	}
}

// Index is the informer of VolumeSnapshots with its indexes, for all that read
// snapshots in one process.
type Index struct {
	indexer client.FieldIndexer

	mu     sync.Mutex
	done   int       // so many indexes are there
	absent time.Time // until then the kind is taken to be missing
}

// NewIndex is the index of an indexer's informers.
func NewIndex(indexer client.FieldIndexer) *Index { return &Index{indexer: indexer} }

// Begin starts the informer, with its indexes, where that has not been done. It
// answers false where the cluster does not have the kind, and does not ask again
// for 10 seconds.
func (i *Index) Begin(ctx context.Context, now time.Time) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.done < len(indexes) && now.Before(i.absent) {
		return false, nil
	}
	for ; i.done < len(indexes); i.done++ { // one that is there already would be refused
		index := indexes[i.done]
		err := i.indexer.IndexField(ctx, &snapshotv1.VolumeSnapshot{}, index.name, index.of)
		if meta.IsNoMatchError(err) {
			i.absent = now.Add(absentFor)
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("watch VolumeSnapshots by %s: %w", index.name, err)
		}
	}
	return true, nil
}

// OfSchedule are the snapshots that a schedule of this name made, as the informer
// has them. They are only to be read.
func OfSchedule(ctx context.Context, cache client.Reader, namespace, name string) ([]snapshotv1.VolumeSnapshot, error) {
	var list snapshotv1.VolumeSnapshotList
	if err := cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{BySchedule: copies.LabelValue(name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the snapshots of schedule %s/%s: %w", namespace, name, err)
	}
	return list.Items, nil
}

// GroupsOfSchedule are the VolumeGroupSnapshots that a schedule of this name made.
// They are only to be read.
func GroupsOfSchedule(ctx context.Context, from client.Reader, namespace, name string) ([]groupv1.VolumeGroupSnapshot, error) {
	var list groupv1.VolumeGroupSnapshotList
	if err := from.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelSchedule: copies.LabelValue(name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the group snapshots of schedule %s/%s: %w", namespace, name, err)
	}
	return slices.DeleteFunc(list.Items, func(g groupv1.VolumeGroupSnapshot) bool { return len(copies.ClaimsOf(&g)) == 0 }), nil
}
