package retention

import (
	"cmp"
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// foreignSource is the index of claims by the namespace of their data source
// where that is another than their own.
const foreignSource = "spec.dataSourceRef.namespace"

// sight is what one look has found: what planners want to know, and the
// snapshots behind it.
type sight struct {
	Observed
	snapshots map[types.UID]*snapshotv1.VolumeSnapshot
	groups    map[string]*groupv1.VolumeGroupSnapshot // that a schedule made
}

// object is what an event about a copy is about.
func (s sight) object(m Member) runtime.Object {
	if snapshot := s.snapshots[m.UID]; snapshot != nil {
		return snapshot
	}
	if group := s.groups[m.Group]; group != nil {
		return group
	}
	return nil
}

// look observes from informers. It is cheap and may be some moments old.
func (r *Reconciler) look(ctx context.Context, s *v1alpha1.SnapshotSchedule, now time.Time, zone *time.Location) (sight, error) {
	made, err := snapshots.OfSchedule(ctx, r.Client, s.Namespace, s.Name)
	if err != nil {
		return sight{}, err
	}
	return r.observe(ctx, r.Client, s, now, zone, made)
}

// lookLive observes from the API server. Nothing is deleted by less: a hold that
// was just written, a claim that was just made or a newer copy that has just
// gone may not have reached the informers.
func (r *Reconciler) lookLive(ctx context.Context, s *v1alpha1.SnapshotSchedule, now time.Time, zone *time.Location) (sight, error) {
	var list snapshotv1.VolumeSnapshotList
	err := r.Live.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: copies.LabelValue(s.Name)})
	if err != nil {
		return sight{}, fmt.Errorf("list the snapshots of schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	return r.observe(ctx, r.Live, s, now, zone, list.Items)
}

func (r *Reconciler) observe(ctx context.Context, from client.Reader, s *v1alpha1.SnapshotSchedule, now time.Time, zone *time.Location, made []snapshotv1.VolumeSnapshot) (sight, error) {
	seen := sight{snapshots: map[types.UID]*snapshotv1.VolumeSnapshot{}, Observed: Observed{
		Rules: s.Spec.Retention, OnClaimDelete: s.Spec.OnClaimDelete, Zone: zone, Cautious: cautious(s), Claims: map[types.UID]Life{},
	}}
	var claims, foreign corev1.PersistentVolumeClaimList
	if err := from.List(ctx, &claims, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return sight{}, fmt.Errorf("list the claims of namespace %s: %w", s.Namespace, err)
	}
	// A claim of another namespace is looked for in the informer alone: such
	// claims are rare, and to list a whole cluster's costs too much.
	if err := r.Client.List(ctx, &foreign, client.MatchingFields{foreignSource: s.Namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return sight{}, fmt.Errorf("list the claims that are filled from namespace %s: %w", s.Namespace, err)
	}
	sources, named := map[string]string{}, map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims.Items {
		c := &claims.Items[i]
		named[c.Name] = c
		seen.Claims[c.UID] = Living
		if c.DeletionTimestamp != nil {
			seen.Claims[c.UID] = Deleting
		}
		if of := filledFrom(c); of.Namespace == s.Namespace {
			sources[of.Name] = c.Name
		}
	}
	for i := range foreign.Items {
		if of := filledFrom(&foreign.Items[i]); of.Namespace == s.Namespace {
			sources[of.Name] = foreign.Items[i].Namespace + "/" + foreign.Items[i].Name
		}
	}
	within := time.Duration(s.Spec.ReadyDeadlineSeconds) * time.Second
	var err error
	if seen.groups, err = r.groups(ctx, from, s); err != nil {
		return sight{}, err
	}
	there := map[types.UID]bool{} // by what OfGroup would call it
	for i := range made {
		snapshot := &made[i]
		if !ours(snapshot) {
			continue
		}
		m := Member{Copy: copies.Of(snapshot, within, now), Source: sources[snapshot.Name], Group: copies.GroupOf(snapshot)}
		if g := seen.groups[m.Group]; g != nil {
			m.Hold, m.Deleting = cmp.Or(m.Hold, copies.HoldOf(g)), m.Deleting || g.DeletionTimestamp != nil
			there[g.UID+"/"+m.ClaimUID] = true
		}
		if of := snapshot.Spec.Source.PersistentVolumeClaimName; of != nil && seen.Claims[m.ClaimUID] == Gone && cutFrom(m.Copy, named[*of]) {
			m.ClaimUID = named[*of].UID
		}
		seen.Copies = append(seen.Copies, m)
		seen.snapshots[snapshot.UID] = snapshot
	}
	// A group that was never cut has no members; it is known by its claims.
	for _, g := range seen.groups {
		for _, c := range copies.OfGroup(g, within, now) {
			if !there[c.UID] {
				seen.Copies = append(seen.Copies, Member{Copy: c, Group: g.Name})
			}
		}
	}
	return seen, nil
}

// cutFrom says of a copy that was asked for of a claim that has gone since whether
// it is of the claim that has the name now. The snapshot-controller goes by the name
// when it comes to it, and was the claim made again by then, its copy holds what the
// new one held: as the newest of the old claim it would push out the last good one.
func cutFrom(c copies.Copy, now *corev1.PersistentVolumeClaim) bool {
	return now != nil && !c.Cut.IsZero() && !c.Cut.Before(now.CreationTimestamp.Time)
}

// groups are the VolumeGroupSnapshots that the schedule made, by name.
func (r *Reconciler) groups(ctx context.Context, from client.Reader, s *v1alpha1.SnapshotSchedule) (map[string]*groupv1.VolumeGroupSnapshot, error) {
	if r.GroupsServed != nil && !r.GroupsServed() {
		return nil, nil
	}
	list, err := snapshots.GroupsOfSchedule(ctx, from, s.Namespace, s.Name)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	byName := map[string]*groupv1.VolumeGroupSnapshot{}
	for i := range list {
		byName[list[i].Name] = &list[i]
	}
	return byName, nil
}

// ours says whether a snapshot with the label of a schedule was made by one: it
// carries all labels of a copy, and was cut from a claim, by itself or with a
// group. What somebody imported or restored from a backup with its labels
// stands for a cloud snapshot that others may count on.
func ours(s *snapshotv1.VolumeSnapshot) bool {
	cut := s.Spec.Source.PersistentVolumeClaimName != nil || copies.GroupOf(s) != ""
	return cut && s.Labels[v1alpha1.LabelSchedule] != "" && s.Labels[v1alpha1.LabelClaimUID] != "" && s.Labels[v1alpha1.LabelSlot] != ""
}

// cautious: the schedule does not take the copies that it should, or nobody has
// looked yet.
func cautious(s *v1alpha1.SnapshotSchedule) bool {
	return s.Spec.Suspend || !healthy(s.Status.Conditions)
}

// sourceOf is the snapshot that a claim is made from; empty: none.
func sourceOf(c *corev1.PersistentVolumeClaim) types.NamespacedName {
	const kind = "VolumeSnapshot"
	is := func(group *string, k string) bool {
		return k == kind && group != nil && *group == snapshotv1.GroupName
	}
	switch ref := c.Spec.DataSourceRef; {
	case ref != nil && is(ref.APIGroup, ref.Kind):
		of := types.NamespacedName{Namespace: c.Namespace, Name: ref.Name}
		if ref.Namespace != nil && *ref.Namespace != "" {
			of.Namespace = *ref.Namespace
		}
		return of
	case ref == nil && c.Spec.DataSource != nil && is(c.Spec.DataSource.APIGroup, c.Spec.DataSource.Kind):
		return types.NamespacedName{Namespace: c.Namespace, Name: c.Spec.DataSource.Name}
	}
	return types.NamespacedName{}
}

// filledFrom is the snapshot that a claim is still to be filled from; empty: it
// has its volume, or none was asked for. One that lost its volume had it.
func filledFrom(c *corev1.PersistentVolumeClaim) types.NamespacedName {
	if c.Status.Phase == corev1.ClaimBound || c.Status.Phase == corev1.ClaimLost {
		return types.NamespacedName{}
	}
	return sourceOf(c)
}

// namespaceOfSource is the index foreignSource.
func namespaceOfSource(o client.Object) []string {
	c, is := o.(*corev1.PersistentVolumeClaim)
	if !is {
		return nil
	}
	if of := sourceOf(c); of.Name != "" && of.Namespace != c.Namespace {
		return []string{of.Namespace}
	}
	return nil
}
