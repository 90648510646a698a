package orphan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// mark writes since when a claim is an orphan.
func (s *Sweeper) mark(ctx context.Context, now time.Time, c *corev1.PersistentVolumeClaim, v Verdict) error {
	// Cut to the second: a Pod that comes in the same one counts as later.
	since := now.UTC().Format(time.RFC3339)
	err := s.annotate(ctx, c, func(a map[string]string) { a[v1alpha1.AnnotationOrphanedSince] = since })
	if err != nil {
		return fmt.Errorf("mark it as an orphan: %w", err)
	}
	s.Events.Eventf(c, nil, corev1.EventTypeNormal, "Orphaned", "Mark", "%s", describe("The claim was left behind: "+v.Why))
	return nil
}

// unmark takes that away.
func (s *Sweeper) unmark(ctx context.Context, c *corev1.PersistentVolumeClaim, v Verdict) error {
	if err := s.annotate(ctx, c, func(a map[string]string) { delete(a, v1alpha1.AnnotationOrphanedSince) }); err != nil {
		return fmt.Errorf("take the mark of an orphan off: %w", err)
	}
	s.Events.Eventf(c, nil, corev1.EventTypeNormal, "OrphanAdopted", "Unmark", "%s", describe("The claim is no orphan any more: "+v.Why))
	return nil
}

// annotate changes the annotations of a claim. Where it has changed since it was
// looked at, the next sweep looks anew.
func (s *Sweeper) annotate(ctx context.Context, c *corev1.PersistentVolumeClaim, change func(map[string]string)) error {
	after := c.DeepCopy()
	change(after.Annotations) // not nil: it carries a stamp or a mark
	err := s.Client.Patch(ctx, after, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// copy takes the snapshot that a claim is deleted after.
func (s *Sweeper) copy(ctx context.Context, o orphaned) error {
	c := o.claim
	class, why, err := s.classOf(ctx, c)
	if err != nil || why != "" { // it was there a moment ago: the next sweep tells
		return err
	}
	snap := snapshotOf(o.seen, class)
	switch err := s.Client.Create(ctx, snap); {
	case apierrors.IsAlreadyExists(err): // ours, and the informer lags; or a stranger's, as the next sweep will tell
		return nil
	case refuses(err):
		return &refusedError{why: "a snapshot of it is refused: " + err.Error()}
	case err != nil:
		return fmt.Errorf("take snapshot %s of it: %w", snap.Name, err)
	}
	s.instruments.snapshots.Inc()
	s.Events.Eventf(c, snap, corev1.EventTypeNormal, "OrphanSnapshot", "Snapshot", "VolumeSnapshot %s is taken; once it is ready, the claim is deleted", snap.Name)
	return nil
}

// snapshotOf is the snapshot that an orphan is deleted after. It has no owner: it
// outlives the claim, and says whose data it is.
func snapshotOf(seen Sight, class string) *snapshotv1.VolumeSnapshot {
	c := seen.Claim
	annotations := map[string]string{v1alpha1.AnnotationClaim: c.Namespace + "/" + c.Name}
	for _, key := range []string{v1alpha1.AnnotationSetUID, v1alpha1.AnnotationSetName, v1alpha1.AnnotationSetTemplate, v1alpha1.AnnotationSetOrdinal, v1alpha1.AnnotationOrphanedSince} {
		annotations[key] = c.Annotations[key]
	}
	labels := map[string]string{
		v1alpha1.LabelOrphanOf: copies.LabelValue(c.Annotations[v1alpha1.AnnotationSetName]), v1alpha1.LabelClaimUID: string(c.UID),
	}
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: SnapshotName(seen), Labels: labels, Annotations: annotations},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &c.Name},
			VolumeSnapshotClassName: &class,
		},
	}
}

// retire deletes a claim, where all that the API server has says so too.
//
//	gone, or another of the name    nothing
//	a policy is not valid           told, and tried again later
//	no longer to be deleted         nothing: the informers will know soon
//	changed since it was read       nothing: the next sweep looks anew
//	refused, or no clear answer     told, and tried again later where it is not gone
func (s *Sweeper) retire(ctx context.Context, now time.Time, o orphaned) error {
	planned, live := o.claim, &corev1.PersistentVolumeClaim{}
	err := s.World.Live.Get(ctx, client.ObjectKeyFromObject(planned), live)
	if apierrors.IsNotFound(err) || err == nil && live.UID != planned.UID {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	policies, unread, err := s.livePolicies(ctx)
	if err != nil {
		return err
	}
	if unread != "" {
		return &refusedError{why: unread}
	}
	eyes := s.look(s.World.Live, policies)
	// Before the sets: one that is made anew meanwhile is there when those are read.
	if err := eyes.readRemade(ctx); err != nil {
		return err
	}
	seen, err := s.sight(ctx, now, eyes, live)
	if err != nil {
		return err
	}
	v := Decide(now, seen)
	if v.Step != Delete {
		return &refusedError{why: v.Why, otherwise: true}
	}
	switch err := s.Client.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case refuses(err):
		return &refusedError{why: "its deletion is refused: " + err.Error()}
	case err != nil:
		return fmt.Errorf("delete it: %w", err)
	}
	s.instruments.deleted.Inc()
	logr.FromContextOrDiscard(ctx).Info("Deleted an orphaned claim", "namespace", live.Namespace, "name", live.Name, "uid", live.UID, "volume", live.Spec.VolumeName, "since", v.Since, "why", v.Why)
	s.Events.Eventf(live, nil, corev1.EventTypeNormal, "OrphanDeleted", "Delete", "%s", describe("The claim was deleted, which "+live.Annotations[v1alpha1.AnnotationSetName]+" left behind: "+v.Why))
	return nil
}

// refuses says whether the API server, or a webhook that it asked, gave a clear no.
func refuses(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err)
}

// refusedError is a clear no, as a sentence about the claim. otherwise: it is by
// what the informers do not show yet, and is told where they go on to show it.
type refusedError struct {
	why       string
	otherwise bool
}

func (e *refusedError) Error() string { return e.why }

// maxEvent is how long a note of an event may be
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1).
const maxEvent = 1024

// tell tells of an orphan that stays, once for each reason.
func (s *Sweeper) tell(o orphaned) {
	m := o.memory
	if m.told == m.verdict.Why {
		return
	}
	m.told = m.verdict.Why
	kind, reason := corev1.EventTypeNormal, "OrphanReported"
	if m.verdict.Step == Blocked {
		kind, reason = corev1.EventTypeWarning, "OrphanBlocked"
	}
	s.Events.Eventf(o.claim, nil, kind, reason, "Look", "%s", describe("The claim was left behind by StatefulSet "+o.claim.Annotations[v1alpha1.AnnotationSetName]+": "+m.verdict.Why))
}
