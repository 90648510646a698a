package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// When a group is looked at again that is cut and has members that the informer
// does not show yet: ever later, since a member may never come.
const (
	membersSoon = 2 * time.Second
	membersLate = time.Minute
)

// membersAgain is after how long to look for members of a group that was cut so
// long ago.
func membersAgain(ago time.Duration) time.Duration {
	return min(max(ago/4, membersSoon), membersLate)
}

// groups are the VolumeGroupSnapshots that the schedule made.
func (r *Reconciler) groups(ctx context.Context, s *v1alpha1.SnapshotSchedule) ([]groupv1.VolumeGroupSnapshot, error) {
	if !r.kinds.Served(snapshots.Group) {
		return nil, nil
	}
	return snapshots.GroupsOfSchedule(ctx, r.client, s.Namespace, s.Name)
}

// labelClaims puts the label of a group on its claims. The group is created after
// it: the snapshot-controller picks claims once, by what the API server says then.
func (r *Reconciler) labelClaims(ctx context.Context, group client.Object, claims []copies.GroupClaim) error {
	g := group.(*groupv1.VolumeGroupSnapshot)
	for _, c := range claims {
		labels := map[string]any{}
		for key, value := range g.Spec.Source.Selector.MatchLabels {
			labels[key] = value
		}
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = g.Namespace, c.Name
		// A claim that was made again since is another, and the UID refuses it.
		if err := r.patchMeta(ctx, claim, map[string]any{"uid": c.UID, "labels": labels}); err != nil {
			return fmt.Errorf("label claim %s for its group: %w", c.Name, err)
		}
	}
	return nil
}

// patchMeta patches metadata. What is named nowhere stays.
func (r *Reconciler) patchMeta(ctx context.Context, o client.Object, metadata map[string]any) error {
	raw, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return r.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))
}

// tend does what groups need besides being created: members get their marks, and
// claims lose the label of a group that has picked them. It answers when to look
// again though nothing may tell; zero: no need. What is refused stops nothing else.
func (r *Reconciler) tend(ctx context.Context, now time.Time, s *v1alpha1.SnapshotSchedule, plan Plan, groups []groupv1.VolumeGroupSnapshot, labelled []*corev1.PersistentVolumeClaim) (time.Time, error) {
	var again time.Time
	errs := []error{r.unlabel(ctx, s, plan, labelled)}
	within := time.Duration(s.Spec.ReadyDeadlineSeconds) * time.Second
	for i := range groups {
		g := &groups[i]
		if g.DeletionTimestamp != nil {
			continue
		}
		var members snapshotv1.VolumeSnapshotList
		if err := r.client.List(ctx, &members, client.InNamespace(g.Namespace), client.MatchingFields{snapshots.ByGroup: g.Name}, client.UnsafeDisableDeepCopy); err != nil {
			errs = append(errs, fmt.Errorf("list the members of VolumeGroupSnapshot %s/%s: %w", g.Namespace, g.Name, err))
			continue
		}
		errs = append(errs, r.mark(ctx, s, g, members.Items))
		if cut := copies.Cut(g); !cut.IsZero() && len(members.Items) < len(copies.ClaimsOf(g)) && now.Before(g.CreationTimestamp.Add(within)) {
			if at := now.Add(membersAgain(now.Sub(cut))); again.IsZero() || at.Before(again) {
				again = at
			}
		}
	}
	return again, errors.Join(errs...)
}

// mark writes the marks that members of a group lack.
func (r *Reconciler) mark(ctx context.Context, s *v1alpha1.SnapshotSchedule, g *groupv1.VolumeGroupSnapshot, members []snapshotv1.VolumeSnapshot) error {
	var errs []error
	for name, marks := range MarksOf(g, members, s.Spec.Template) {
		metadata := map[string]any{"annotations": marks.Annotations}
		if marks.Labels != nil {
			metadata["labels"] = marks.Labels
		}
		member := &snapshotv1.VolumeSnapshot{}
		member.Namespace, member.Name = g.Namespace, name
		if err := r.patchMeta(ctx, member, metadata); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("mark VolumeSnapshot %s/%s of group %s: %w", g.Namespace, name, g.Name, err))
		}
	}
	return errors.Join(errs...)
}

// unlabel takes the labels of groups off claims. The API server is asked: a group
// that was just made may not be in the informer, and its claims not be picked.
//
//	the group is planned just now            stays
//	it is there, and is not bound yet        stays: its claims are still to be picked
//	it is there, and is bound, or is going   off
//	it is not there                          off: the manager died before it made it
func (r *Reconciler) unlabel(ctx context.Context, s *v1alpha1.SnapshotSchedule, plan Plan, labelled []*corev1.PersistentVolumeClaim) error {
	own, done := copies.OwnGroupLabels(s.UID), map[string]bool{}
	for _, claim := range labelled {
		off := map[string]any{}
		for key, group := range claim.Labels {
			if !strings.HasPrefix(key, own) || slices.ContainsFunc(plan.Groups, func(g Group) bool { return g.Object.Name == group }) {
				continue
			}
			over, known := done[group]
			if !known {
				var err error
				if over, err = r.picked(ctx, types.NamespacedName{Namespace: s.Namespace, Name: group}); err != nil {
					return err
				}
				done[group] = over
			}
			if over {
				off[key] = nil
			}
		}
		if len(off) == 0 {
			continue
		}
		bare := &corev1.PersistentVolumeClaim{}
		bare.Namespace, bare.Name = claim.Namespace, claim.Name
		err := r.patchMeta(ctx, bare, map[string]any{"uid": claim.UID, "labels": off})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // gone, or another of its name
			return fmt.Errorf("take the labels of groups off claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

// picked says whether a group picks claims no more.
func (r *Reconciler) picked(ctx context.Context, group types.NamespacedName) (bool, error) {
	g := &groupv1.VolumeGroupSnapshot{}
	err := r.live.Get(ctx, group, g)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read VolumeGroupSnapshot %s: %w", group, err)
	}
	return g.DeletionTimestamp != nil || g.Status != nil && g.Status.BoundVolumeGroupSnapshotContentName != nil, nil
}
