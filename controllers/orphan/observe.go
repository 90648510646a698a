package orphan

import (
	"context"
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
)

// eyes look at what surrounds claims, through one reader. Each list is read once
// and, of one namespace, when its first claim is looked at.
type eyes struct {
	reader   client.Reader
	policies []*policy.Policy // as they act
	sets     map[string][]appsv1.StatefulSet
	pods     map[string]map[string][]string // by namespace and claim
	clones   map[string]map[string][]string // claims to be made, by namespace and the claim that they are made from
	attached map[string][]string            // nodes by volume; nil: not read yet
	ask      Remade
	remade   func(set types.NamespacedName) bool // nil: not asked yet
}

func (s *Sweeper) look(reader client.Reader, policies []*policy.Policy) *eyes {
	return &eyes{
		reader: reader, policies: policies, sets: map[string][]appsv1.StatefulSet{}, pods: map[string]map[string][]string{},
		clones: map[string]map[string][]string{}, ask: s.Remade,
	}
}

// readRemade asks which sets are being made anew.
func (e *eyes) readRemade(ctx context.Context) (err error) {
	if e.remade == nil {
		e.remade, err = e.ask(ctx)
	}
	return err
}

// setsOf are the StatefulSets of a namespace.
func (e *eyes) setsOf(ctx context.Context, namespace string) ([]appsv1.StatefulSet, error) {
	if known, is := e.sets[namespace]; is {
		return known, nil
	}
	var list appsv1.StatefulSetList
	if err := e.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the StatefulSets of namespace %s: %w", namespace, err)
	}
	e.sets[namespace] = list.Items
	return list.Items, nil
}

// podsOf are the Pods that name a claim.
func (e *eyes) podsOf(ctx context.Context, namespace, name string) ([]string, error) {
	if known, is := e.pods[namespace]; is {
		return known[name], nil
	}
	var list corev1.PodList
	if err := e.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Pods of namespace %s: %w", namespace, err)
	}
	users := map[string][]string{}
	for i := range list.Items {
		for _, v := range list.Items[i].Spec.Volumes {
			if of := claimOf(list.Items[i].Name, v); of != "" {
				users[of] = append(users[of], list.Items[i].Name)
			}
		}
	}
	e.pods[namespace] = users
	return users[name], nil
}

// clonesOf are the claims that are to be made from a claim, and are not bound yet.
func (e *eyes) clonesOf(ctx context.Context, namespace, name string) ([]string, error) {
	if known, is := e.clones[namespace]; is {
		return known[name], nil
	}
	var list corev1.PersistentVolumeClaimList
	if err := e.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the claims of namespace %s: %w", namespace, err)
	}
	clones := map[string][]string{}
	for i := range list.Items {
		c := &list.Items[i]
		// The API server writes a source that is a claim into both fields.
		if from := c.Spec.DataSource; from != nil && from.Kind == "PersistentVolumeClaim" && c.Status.Phase != corev1.ClaimBound && c.DeletionTimestamp == nil {
			clones[from.Name] = append(clones[from.Name], c.Name)
		}
	}
	e.clones[namespace] = clones
	return clones[name], nil
}

// nodesOf are the nodes that a volume is attached to, or is to be.
func (e *eyes) nodesOf(ctx context.Context, volume string) ([]string, error) {
	if e.attached == nil {
		var list storagev1.VolumeAttachmentList
		if err := e.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list VolumeAttachments: %w", err)
		}
		e.attached = map[string][]string{}
		for i := range list.Items {
			if name := list.Items[i].Spec.Source.PersistentVolumeName; name != nil {
				e.attached[*name] = append(e.attached[*name], list.Items[i].Spec.NodeName)
			}
		}
	}
	return e.attached[volume], nil
}

// sight gathers what Decide wants of a claim. What costs most comes last, and only
// for what nothing else spares.
func (s *Sweeper) sight(ctx context.Context, now time.Time, e *eyes, c *corev1.PersistentVolumeClaim) (Sight, error) {
	seen := Sight{Claim: c, LastUse: s.uses.last(client.ObjectKeyFromObject(c)), WatchedSince: s.since.Round(0)}
	if m := s.memories[c.UID]; m != nil {
		// Of Go's two clocks Since goes by the one that is never set, and Round takes it
		// off: https://pkg.go.dev/time#hdr-Monotonic_Clocks
		seen.Watched = s.Clock.Since(m.since)
		seen.Leapt = now.Round(0).Sub(m.since.Round(0)) - seen.Watched
	}
	var err error
	if seen.Sets, err = e.setsOf(ctx, c.Namespace); err != nil {
		return Sight{}, err
	}
	if Held(c, seen.Sets) != "" { // nearly all of them
		return seen, nil
	}
	_, of, err := claim.Look(ctx, s.World, c)
	if err != nil {
		return Sight{}, err
	}
	seen.Leaving = of.Namespace.Terminating
	if acts := policy.OnOrphan(e.policies, of); acts != nil {
		seen.Rules = acts.Orphans
	}
	if seen.Rules == nil || seen.Leaving {
		return seen, nil
	}
	if err := e.readRemade(ctx); err != nil {
		return Sight{}, err
	}
	stamp, _ := StampOf(c)
	seen.Remade = e.remade(types.NamespacedName{Namespace: c.Namespace, Name: stamp.Set})
	if seen.Pods, err = e.podsOf(ctx, c.Namespace, c.Name); err != nil {
		return Sight{}, err
	}
	if seen.Clones, err = e.clonesOf(ctx, c.Namespace, c.Name); err != nil {
		return Sight{}, err
	}
	if c.Spec.VolumeName != "" {
		if seen.Nodes, err = e.nodesOf(ctx, c.Spec.VolumeName); err != nil {
			return Sight{}, err
		}
	}
	if since, ok := Since(c); !ok || now.Before(since.Add(time.Duration(seen.Rules.AfterSeconds)*time.Second)) || seen.Rules.Action == v1alpha1.ReportOrphans {
		return seen, nil // nothing is due
	}
	if seen.Rules.Action == v1alpha1.SnapshotThenDelete {
		if err := s.copyOf(ctx, e.reader, &seen); err != nil {
			return Sight{}, err
		}
	}
	seen.Forbidden, err = s.forbidden(ctx, now, e.policies, seen)
	return seen, err
}

// copyOf gathers the snapshot of a claim, or whether one can be taken.
func (s *Sweeper) copyOf(ctx context.Context, reader client.Reader, seen *Sight) error {
	if !s.Kinds.Served(snapshots.Single) {
		seen.NoSnapshot = "the cluster does not know VolumeSnapshots: install their CRDs and the snapshot-controller"
		return nil
	}
	key := client.ObjectKey{Namespace: seen.Claim.Namespace, Name: SnapshotName(*seen)}
	there := &snapshotv1.VolumeSnapshot{}
	switch err := reader.Get(ctx, key, there); {
	case err == nil:
		seen.Snapshot = there
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look up VolumeSnapshot %s: %w", key, err)
	}
	_, why, err := s.classOf(ctx, seen.Claim)
	seen.NoSnapshot = why
	return err
}

// classOf is the VolumeSnapshotClass for a claim, or why there is none. A schedule
// that names no class would take the same.
func (s *Sweeper) classOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (class, why string, err error) {
	var classes snapshotv1.VolumeSnapshotClassList
	if err := s.World.Cache.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return "", "", fmt.Errorf("list VolumeSnapshotClasses: %w", err)
	}
	var volume *corev1.PersistentVolume
	if c.Spec.VolumeName != "" {
		v := &corev1.PersistentVolume{}
		switch err := s.World.Cache.Get(ctx, client.ObjectKey{Name: c.Spec.VolumeName}, v); {
		case err == nil:
			volume = v
		case !apierrors.IsNotFound(err):
			return "", "", fmt.Errorf("look up PersistentVolume %s: %w", c.Spec.VolumeName, err)
		}
	}
	candidate, cannot := schedule.Judge(&v1alpha1.SnapshotScheduleSpec{}, c, volume, schedule.Classes{Single: classes.Items})
	if cannot == nil {
		return candidate.Class, "", nil
	}
	return "", without(c, volume, cannot), nil
}

// without says why there is no snapshot class for a claim, and what can be done
// about it without a schedule.
func without(c *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, cannot *v1alpha1.ClaimSnapshots) string {
	switch reason := cannot.Reason; {
	case volume == nil || volume.Spec.CSI == nil:
		return cannot.Message
	case reason == v1alpha1.ClaimNoClass, reason == v1alpha1.ClaimAmbiguousClass:
		return fmt.Sprintf("mark one VolumeSnapshotClass of driver %s as default, or name one in the claim's annotation %s", volume.Spec.CSI.Driver, v1alpha1.AnnotationSnapshotClass)
	case reason == v1alpha1.ClaimNoSnapshots:
		return fmt.Sprintf("there is no VolumeSnapshotClass of driver %s: make one if the driver can snapshot, else copy what is needed and delete the claim yourself", volume.Spec.CSI.Driver)
	case reason == v1alpha1.ClaimClassOfOther:
		return fmt.Sprintf("VolumeSnapshotClass %q is of another driver than the volume: name one of driver %s in the claim's annotation %s", c.Annotations[v1alpha1.AnnotationSnapshotClass], volume.Spec.CSI.Driver, v1alpha1.AnnotationSnapshotClass)
	}
	return cannot.Message
}

// forbidden is why the policies refuse the deletion of a claim; empty: they do
// not. A snapshot that is still to be taken counts as there: without it nothing is
// deleted.
func (s *Sweeper) forbidden(ctx context.Context, now time.Time, policies []*policy.Policy, seen Sight) (string, error) {
	var cut time.Time
	if seen.Rules.Action == v1alpha1.SnapshotThenDelete {
		if cut = now; seen.Snapshot != nil {
			cut = copies.Of(seen.Snapshot, 0, time.Time{}).At()
		}
	}
	findings, err := claim.DeletionWith(ctx, s.World, policies, seen.Claim, cut)
	if err != nil {
		return "", err
	}
	var refusals []string
	for _, f := range findings {
		if f.Action == v1alpha1.Deny {
			// Not what was found: the age of a snapshot, another each time.
			refusals = append(refusals, fmt.Sprintf("StoragePolicy %q, rule %s, about %s: wanted is %s: %s", f.Policy, f.Rule, f.Field, f.Wanted, f.Todo))
		}
	}
	return strings.Join(refusals, "; "), nil
}
