package retention

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// staleAfter is how old a mark must be before a snapshot that is still there
// makes it go: longer than any deletion that it was written for can be on its way.
const staleAfter = 10 * time.Minute

// lookAgainAfter is when a content is looked at again whose snapshot is being
// deleted, besides when the snapshot has gone.
const lookAgainAfter = time.Minute

// kind is one of the two kinds of contents, and of the snapshots they belong to.
type kind struct {
	name     string
	family   snapshots.Family
	content  func() client.Object
	snapshot func() client.Object
	// fields of a content: what becomes of the cloud snapshot, and whose it is.
	fields func(client.Object) (*string, *corev1.ObjectReference)
	// beingDeleted is the annotation without which the snapshotter never deletes
	// the cloud snapshot of a content. The snapshot-controller writes it when it
	// sees the deletion of the snapshot.
	beingDeleted string
}

// The kinds. The annotations are those of external-snapshotter's pkg/utils.
var (
	single = kind{
		name: "single", family: snapshots.Single,
		content:  func() client.Object { return &snapshotv1.VolumeSnapshotContent{} },
		snapshot: func() client.Object { return &snapshotv1.VolumeSnapshot{} },
		fields: func(o client.Object) (*string, *corev1.ObjectReference) {
			c := o.(*snapshotv1.VolumeSnapshotContent)
			return (*string)(&c.Spec.DeletionPolicy), &c.Spec.VolumeSnapshotRef
		},
		beingDeleted: "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted",
	}
	group = kind{
		name: "group", family: snapshots.Group,
		content:  func() client.Object { return &groupv1.VolumeGroupSnapshotContent{} },
		snapshot: func() client.Object { return &groupv1.VolumeGroupSnapshot{} },
		fields: func(o client.Object) (*string, *corev1.ObjectReference) {
			c := o.(*groupv1.VolumeGroupSnapshotContent)
			return (*string)(&c.Spec.DeletionPolicy), &c.Spec.VolumeGroupSnapshotRef
		},
		beingDeleted: "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted",
	}
)

// Values of a content's deletionPolicy.
const (
	retains = string(snapshotv1.VolumeSnapshotContentRetain)
	deletes = string(snapshotv1.VolumeSnapshotContentDelete)
)

// contentOf is the name of the content of a snapshot. Before a snapshot knows its
// content, the snapshot-controller may have made it, under this name.
func contentOf(s *snapshotv1.VolumeSnapshot) string {
	if s.Status != nil && s.Status.BoundVolumeSnapshotContentName != nil {
		return *s.Status.BoundVolumeSnapshotContentName
	}
	return snapshots.ContentName(s.UID)
}

// contentOfGroup is the same of a group.
func contentOfGroup(g *groupv1.VolumeGroupSnapshot) string {
	if g.Status != nil && g.Status.BoundVolumeGroupSnapshotContentName != nil {
		return *g.Status.BoundVolumeGroupSnapshotContentName
	}
	return "groupsnapcontent-" + string(g.UID)
}

// mark writes on the content of a snapshot that is about to be deleted what is to
// become of it. It answers nothing where no mark is needed:
//
//	there is no content, or it is another snapshot's    nothing is left behind
//	it is being deleted, or its policy is Delete         it goes with the snapshot
func (r *Reconciler) mark(ctx context.Context, k kind, name string, uid types.UID, s *v1alpha1.SnapshotSchedule) (client.Object, error) {
	content := k.content()
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, content)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read content %s: %w", name, err)
	}
	policy, ref := k.fields(content)
	if ref.UID != uid || *policy != retains || content.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	before := content.DeepCopyObject().(client.Object)
	content.SetLabels(with(content.GetLabels(), map[string]string{
		v1alpha1.LabelContents: string(contentsOf(s)), v1alpha1.LabelSchedule: copies.LabelValue(s.Name),
	}))
	content.SetAnnotations(with(content.GetAnnotations(), map[string]string{
		v1alpha1.AnnotationExpiredUID: string(uid), v1alpha1.AnnotationExpiredAt: r.Clock.Now().UTC().Format(time.RFC3339),
	}))
	if err := r.Client.Patch(ctx, content, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("mark content %s: %w", name, err)
	}
	return content, nil
}

// contentsOf is what becomes of the cloud snapshots of a schedule's copies.
func contentsOf(s *v1alpha1.SnapshotSchedule) v1alpha1.ContentRetention {
	if s.Spec.Retention.Contents == v1alpha1.FollowClass {
		return v1alpha1.FollowClass
	}
	return v1alpha1.DeleteContents
}

// unmark takes the marks off again: the snapshot stays, and its content is what
// it was.
func unmark(ctx context.Context, c client.Client, content client.Object) error {
	before := content.DeepCopyObject().(client.Object)
	content.SetLabels(without(content.GetLabels(), v1alpha1.LabelContents, v1alpha1.LabelSchedule))
	content.SetAnnotations(without(content.GetAnnotations(), v1alpha1.AnnotationExpiredUID, v1alpha1.AnnotationExpiredAt))
	if err := c.Patch(ctx, content, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the marks off content %s: %w", content.GetName(), err)
	}
	return nil
}

func with(m, more map[string]string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for k, v := range more {
		m[k] = v
	}
	return m
}

func without(m map[string]string, keys ...string) map[string]string {
	for _, k := range keys {
		delete(m, k)
	}
	return m
}

// finisher does with marked contents of one kind what their marks say, once
// their snapshots have gone.
type finisher struct {
	kind   kind
	client client.Client
	marked client.Reader // holds contents with marks, and no others
	live   client.Reader
	clock  clock.PassiveClock
}

// Reconcile looks at one content.
//
//	no mark, or being deleted                       nothing
//	bound to another snapshot since                 marks off: somebody rescued it
//	snapshot there, marked less than 10 minutes ago  later: the deletion may be on its way
//	snapshot there, marked earlier                  marks off: it was not deleted after all
//	snapshot being deleted                          when it has gone
//	snapshot gone, FollowClass                      nothing: the content stays, and is counted
//	snapshot gone, Delete, policy Retain            policy Delete, then deleted
//	snapshot gone, Delete, policy Delete            deleted
func (f *finisher) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	content := f.kind.content()
	err := f.marked.Get(ctx, req.NamespacedName, content)
	if apierrors.IsNotFound(err) || err == nil && (content.GetDeletionTimestamp() != nil || content.GetLabels()[v1alpha1.LabelContents] == "") {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read content %s: %w", req.Name, err)
	}
	_, ref := f.kind.fields(content)
	if string(ref.UID) != content.GetAnnotations()[v1alpha1.AnnotationExpiredUID] {
		return ctrl.Result{}, unmark(ctx, f.client, content)
	}
	snapshot := f.kind.snapshot()
	err = f.live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, snapshot)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("look whether snapshot %s/%s of content %s is there: %w", ref.Namespace, ref.Name, req.Name, err)
	}
	switch gone := err != nil || snapshot.GetUID() != ref.UID; {
	case gone && content.GetLabels()[v1alpha1.LabelContents] == string(v1alpha1.DeleteContents):
		return ctrl.Result{}, f.finish(ctx, content)
	case gone:
		return ctrl.Result{}, nil
	case snapshot.GetDeletionTimestamp() != nil:
		return ctrl.Result{RequeueAfter: lookAgainAfter}, nil
	}
	at, err := time.Parse(time.RFC3339, content.GetAnnotations()[v1alpha1.AnnotationExpiredAt])
	if age := f.clock.Since(at); err == nil && age < staleAfter {
		return ctrl.Result{RequeueAfter: staleAfter - age}, nil
	}
	return ctrl.Result{}, unmark(ctx, f.client, content)
}

// finish deletes a content so that its cloud snapshot goes with it.
func (f *finisher) finish(ctx context.Context, content client.Object) error {
	policy, _ := f.kind.fields(content)
	_, told := content.GetAnnotations()[f.kind.beingDeleted]
	if *policy != deletes || !told {
		before := content.DeepCopyObject().(client.Object)
		*policy = deletes
		content.SetAnnotations(with(content.GetAnnotations(), map[string]string{f.kind.beingDeleted: "yes"}))
		if err := f.client.Patch(ctx, content, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("let the cloud snapshot of content %s go with it: %w", content.GetName(), err)
		}
	}
	uid, version := content.GetUID(), content.GetResourceVersion()
	if err := f.client.Delete(ctx, content, client.Preconditions{UID: &uid, ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete content %s: %w", content.GetName(), err)
	}
	return nil
}
