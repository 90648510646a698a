package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/slim"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// queuedFor is how long a copy that is not cut counts against the caps of
// cluster and class. The external snapshotter tries one that fails again after
// ever longer times, up to five minutes (its --retry-interval-max): a driver that
// cuts nothing must not stop the others.
const queuedFor = 10 * time.Minute

// claims are those that the target matches, judged. labelled are those of the
// namespace that carry labels of groups of the schedule.
func (r *Reconciler) claims(ctx context.Context, s *v1alpha1.SnapshotSchedule, target Target) (candidates []Candidate, excluded []v1alpha1.ClaimSnapshots, labelled []*corev1.PersistentVolumeClaim, err error) {
	var claims corev1.PersistentVolumeClaimList
	if err := r.client.List(ctx, &claims, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, nil, fmt.Errorf("list the claims of namespace %s: %w", s.Namespace, err)
	}
	classes, err := r.classes(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	own := copies.OwnGroupLabels(s.UID)
	for i := range claims.Items {
		claim := &claims.Items[i]
		if hasPrefix(claim.Labels, own) {
			labelled = append(labelled, claim)
		}
		if !target.Matches(claim) {
			continue
		}
		volume, err := r.volume(ctx, claim.Spec.VolumeName)
		if err != nil {
			return nil, nil, nil, err
		}
		candidate, why := Judge(&s.Spec, claim, volume, classes)
		if why != nil {
			excluded = append(excluded, *why)
			continue
		}
		candidates = append(candidates, candidate)
	}
	return candidates, excluded, labelled, nil
}

// hasPrefix says whether any label has such a key.
func hasPrefix(labels map[string]string, prefix string) bool {
	for key := range labels {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// classes are those of the cluster.
func (r *Reconciler) classes(ctx context.Context) (Classes, error) {
	var single snapshotv1.VolumeSnapshotClassList
	if err := r.client.List(ctx, &single, client.UnsafeDisableDeepCopy); err != nil {
		return Classes{}, fmt.Errorf("list VolumeSnapshotClasses: %w", err)
	}
	if !r.kinds.Served(snapshots.Group) {
		return Classes{Single: single.Items}, nil
	}
	var group groupv1.VolumeGroupSnapshotClassList
	if err := r.client.List(ctx, &group, client.UnsafeDisableDeepCopy); err != nil {
		return Classes{}, fmt.Errorf("list VolumeGroupSnapshotClasses: %w", err)
	}
	return Classes{Single: single.Items, Group: group.Items}, nil
}

// pods are the running Pods of a namespace that mount claims. They are listed and
// not watched: they are wanted while a run of groups is due, and at no other time.
func (r *Reconciler) pods(ctx context.Context, namespace string) ([]Pod, error) {
	var list corev1.PodList
	if err := r.live.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the Pods of namespace %s: %w", namespace, err)
	}
	var pods []Pod
	for i := range list.Items {
		p := &list.Items[i]
		if claims := hooks.ClaimsOf(p); p.Status.Phase == corev1.PodRunning && len(claims) > 0 {
			pods = append(pods, Pod{Node: p.Spec.NodeName, Claims: claims})
		}
	}
	return pods, nil
}

// volume is a PersistentVolume as SlimVolume leaves it; nil: it is not there.
func (r *Reconciler) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if name == "" {
		return nil, nil
	}
	volume := &corev1.PersistentVolume{}
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, volume, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up PersistentVolume %s: %w", name, err)
	}
	return volume, nil
}

// SlimVolume is the transform of the informer of PersistentVolumes: a cluster has
// thousands of them, and all that is read is whose driver one is, which claim it
// is bound to, how large it is and what has become of it. Most are of few drivers
// and sizes.
func SlimVolume(o any) (any, error) {
	v, is := o.(*corev1.PersistentVolume)
	if !is {
		return o, nil
	}
	kept := &corev1.PersistentVolume{}
	kept.Name, kept.UID, kept.ResourceVersion = v.Name, v.UID, v.ResourceVersion
	kept.CreationTimestamp, kept.DeletionTimestamp = v.CreationTimestamp, v.DeletionTimestamp
	kept.Spec.Capacity, kept.Status.Phase = slim.Sizes(v.Spec.Capacity), slim.Text(v.Status.Phase)
	kept.Spec.PersistentVolumeReclaimPolicy, kept.Status.Message = slim.Text(v.Spec.PersistentVolumeReclaimPolicy), v.Status.Message
	kept.Spec.VolumeAttributesClassName = slim.Pointer(v.Spec.VolumeAttributesClassName)
	if of := v.Spec.ClaimRef; of != nil {
		kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: slim.Text(of.Namespace), Name: of.Name, UID: of.UID}
	}
	if v.Spec.CSI != nil {
		kept.Spec.CSI = sources.Of(v.Spec.CSI.Driver, func() (string, corev1.CSIPersistentVolumeSource) {
			driver := slim.Text(v.Spec.CSI.Driver)
			return driver, corev1.CSIPersistentVolumeSource{Driver: driver}
		})
	}
	return kept, nil
}

// sources of volumes, as far as they are read. A cluster has few drivers.
var sources = slim.Shared[string, corev1.CSIPersistentVolumeSource]{Most: 100}

// observe gathers what Decide wants. The ledger adds what the informers do not
// show yet.
func (r *Reconciler) observe(ctx context.Context, now time.Time, s *v1alpha1.SnapshotSchedule, seen Observed, groups []groupv1.VolumeGroupSnapshot, l *ledger) (Observed, error) {
	seen.Load, seen.Volumes = Load{Class: map[string]int{}}, map[types.UID]VolumeLoad{}
	within := time.Duration(s.Spec.ReadyDeadlineSeconds) * time.Second
	own, err := snapshots.OfSchedule(ctx, r.client, s.Namespace, s.Name)
	if err != nil {
		return Observed{}, err
	}
	for i := range own {
		l.shown(client.ObjectKeyFromObject(&own[i]))
		if c := copies.Of(&own[i], within, now); c.ClaimUID != "" && c.Slot != "" { // else somebody's, with our label
			seen.Copies = append(seen.Copies, c)
		}
	}
	seen.Copies = withGroups(seen.Copies, groups, within, now)
	for i := range groups {
		l.shownGroup(client.ObjectKeyFromObject(&groups[i]), copies.ClaimsOf(&groups[i]))
	}
	if err := r.load(ctx, now, &seen, l); err != nil {
		return Observed{}, err
	}
	for _, c := range seen.Candidates {
		if r.limits.Volume[c.Driver] == (VolumeLimit{}) {
			continue
		}
		if seen.Volumes[c.Claim.UID], err = r.volumeLoad(ctx, now, within, c.Claim); err != nil {
			return Observed{}, err
		}
	}
	if err := r.groupLoad(ctx, now, s.Namespace, &seen); err != nil {
		return Observed{}, err
	}
	l.addTo(&seen, client.ObjectKeyFromObject(s), within)
	return seen, nil
}

// load counts what waits to be cut in the whole cluster.
func (r *Reconciler) load(ctx context.Context, now time.Time, seen *Observed, l *ledger) error {
	var uncut snapshotv1.VolumeSnapshotList
	if err := r.client.List(ctx, &uncut, client.MatchingFields{snapshots.ByProgress: snapshots.Uncut}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the snapshots that wait to be cut: %w", err)
	}
	for i := range uncut.Items {
		s := &uncut.Items[i]
		l.shown(client.ObjectKeyFromObject(s))
		if now.Sub(s.CreationTimestamp.Time) > queuedFor {
			continue
		}
		seen.Load.Cluster++
		if s.Spec.VolumeSnapshotClassName != nil {
			seen.Load.Class[*s.Spec.VolumeSnapshotClassName]++
		}
	}
	return nil
}

// volumeLoad is what is in the making of a claim, by whomever: the driver counts
// them all.
func (r *Reconciler) volumeLoad(ctx context.Context, now time.Time, within time.Duration, claim *corev1.PersistentVolumeClaim) (VolumeLoad, error) {
	var list snapshotv1.VolumeSnapshotList
	if err := r.client.List(ctx, &list, client.InNamespace(claim.Namespace), client.MatchingFields{snapshots.ByClaim: claim.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return VolumeLoad{}, fmt.Errorf("list the snapshots of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	var load VolumeLoad
	for i := range list.Items {
		c := copies.Of(&list.Items[i], within, now)
		load.LastAsked = latest(load.LastAsked, c.Asked)
		if c.State == copies.Making && !c.Deleting {
			load.Pending++
		}
	}
	return load, nil
}

// withGroups adds what groups stand for whose members are not there, or not marked yet.
func withGroups(all []copies.Copy, groups []groupv1.VolumeGroupSnapshot, within time.Duration, now time.Time) []copies.Copy {
	type member struct {
		group string
		claim types.UID
	}
	there := map[member]bool{}
	for _, c := range all {
		if c.Whole {
			there[member{c.With, c.ClaimUID}] = true
		}
	}
	for i := range groups {
		for _, c := range copies.OfGroup(&groups[i], within, now) {
			if !there[member{c.With, c.ClaimUID}] {
				all = append(all, c)
			}
		}
	}
	return all
}

// groupLoad counts what groups, by whichever schedule, have in the making and has
// no members yet.
func (r *Reconciler) groupLoad(ctx context.Context, now time.Time, namespace string, seen *Observed) error {
	if !r.kinds.Served(snapshots.Group) {
		return nil
	}
	var list groupv1.VolumeGroupSnapshotList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list VolumeGroupSnapshots: %w", err)
	}
	for i := range list.Items {
		g := &list.Items[i]
		if g.DeletionTimestamp != nil || !copies.Cut(g).IsZero() || now.Sub(g.CreationTimestamp.Time) > queuedFor {
			continue
		}
		claims := copies.ClaimsOf(g)
		seen.Load.Cluster += len(claims)
		if g.Spec.VolumeGroupSnapshotClassName != nil {
			seen.Load.Class[groupLoad(*g.Spec.VolumeGroupSnapshotClassName)] += len(claims)
		}
		for _, c := range claims {
			if v, limited := seen.Volumes[c.UID]; limited && g.Namespace == namespace {
				seen.Volumes[c.UID] = VolumeLoad{Pending: v.Pending + 1, LastAsked: latest(v.LastAsked, g.CreationTimestamp.Time)}
			}
		}
	}
	return nil
}
