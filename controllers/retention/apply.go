package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
)

// A deletion that was refused is tried again after a minute, then after twice
// the time before, up to an hour: what refuses it is a policy or a person, and
// both take their time.
const (
	retryFirst = time.Minute
	retryMost  = time.Hour
	// retryChanged is when a copy is looked at again that has changed since it was
	// judged: the informers know by then.
	retryChanged = 5 * time.Second
)

// refusal remembers that a deletion was refused. It is not kept over a restart:
// then the deletion is tried once more, and refused once more.
type refusal struct {
	why   string // empty: it had changed since it was judged, which is nothing to tell
	after time.Duration
	next  time.Time
}

// batch is what is deleted by one call: a copy, or a whole group of them.
type batch struct {
	key     string // tells it from others of the schedule
	group   string // empty: a copy by itself
	members []Verdict
}

// batches are the copies to delete, oldest first, groups whole.
func batches(goes []Verdict) []batch {
	var all []batch
	at := map[string]int{}
	for _, v := range goes {
		i, known := at[v.Group]
		switch {
		case v.Group == "":
			all = append(all, batch{key: string(v.UID), members: []Verdict{v}})
		case known:
			all[i].members = append(all[i].members, v)
		default:
			at[v.Group] = len(all)
			all = append(all, batch{key: "group " + v.Group, group: v.Group, members: []Verdict{v}})
		}
	}
	return all
}

// outcome is what deleting came to.
type outcome struct {
	refused []Verdict     // with the reason
	again   time.Duration // when there is more to do; 0: nothing
}

// later makes the outcome ask for another look.
func (o *outcome) later(d time.Duration) {
	if o.again == 0 || d < o.again {
		o.again = d
	}
}

// pending are the deletions that may be tried now, oldest first, and what there
// is to say of the others: refused not long ago, or out of budget.
func (r *Reconciler) pending(s *v1alpha1.SnapshotSchedule, now time.Time, goes []batch) ([]batch, outcome) {
	known := r.refusals[client.ObjectKeyFromObject(s)]
	var ready []batch
	var out outcome
	for _, b := range goes {
		told := known[b.key]
		if told.next.After(now) {
			out.later(told.next.Sub(now))
		} else {
			ready = append(ready, b)
		}
		if told.why != "" {
			out.refused = append(out.refused, Verdict{b.members[0].Member, told.why})
		}
	}
	if wait := r.budget.wait(now); wait > 0 && len(ready) > 0 {
		out.later(wait)
		return nil, out
	}
	return ready, out
}

// deleteAll deletes what a plan wants gone, as far as it may now. seen was read
// from the API server a moment ago.
func (r *Reconciler) deleteAll(ctx context.Context, s *v1alpha1.SnapshotSchedule, now time.Time, seen sight, goes []Verdict) (outcome, error) {
	key := client.ObjectKeyFromObject(s)
	all := batches(goes)
	before, after := r.refusals[key], map[string]refusal{}
	for _, b := range all { // what is not planned any more is forgotten
		if told, was := before[b.key]; was {
			after[b.key] = told
		}
	}
	r.refusals[key] = after
	ready, _ := r.pending(s, now, all)
	gone := map[string]bool{}
	var failed []error
	for _, b := range ready {
		if r.budget.wait(now) > 0 {
			break
		}
		r.budget.spend(len(b.members))
		err := r.delete(ctx, s, seen, b)
		switch {
		case err == nil:
			gone[b.key] = true
			delete(after, b.key)
			r.tellDeleted(ctx, s, seen, b)
		case apierrors.IsConflict(err): // it has changed since it was judged
			after[b.key] = refusal{next: now.Add(retryChanged)}
		case refuses(err):
			told := refusal{why: "its deletion is refused: " + err.Error(), after: max(retryFirst, min(2*after[b.key].after, retryMost))}
			told.next = now.Add(told.after)
			after[b.key] = told
			r.tellRefused(s, seen, b, told)
		default:
			failed = append(failed, err)
		}
	}
	_, out := r.pending(s, now, slices.DeleteFunc(all, func(b batch) bool { return gone[b.key] }))
	return out, errors.Join(failed...)
}

// refuses says whether the API server, or a webhook that it asked, gave a clear
// no. Any other error leaves open whether the copy was deleted.
func refuses(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && // a conflict is one, too
		!apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err)
}

// delete deletes a copy or a group: first the marks on what would be left
// behind, then the snapshot. Killed in between, the next look begins anew; where
// that finds that the copy stays, finisher takes the marks off.
func (r *Reconciler) delete(ctx context.Context, s *v1alpha1.SnapshotSchedule, seen sight, b batch) error {
	if b.group != "" {
		whole, err := r.wholeGroup(ctx, s, seen, b)
		if err != nil {
			return err
		}
		if whole != nil {
			return r.deleteMarked(ctx, s, whole.object, seen, b.members, whole)
		}
	}
	for _, v := range b.members { // of a group that has gone, each is as any
		snapshot := seen.snapshots[v.UID]
		if snapshot == nil { // it was never cut
			continue
		}
		if err := r.deleteMarked(ctx, s, snapshot, seen, []Verdict{v}, nil); err != nil {
			return err
		}
	}
	return nil
}

// whole is a group that goes whole.
type whole struct {
	object *groupv1.VolumeGroupSnapshot
	// unmarked are members that nobody has marked as the schedule's.
	unmarked []*snapshotv1.VolumeSnapshot
}

// deleteMarked deletes one object, with which the copies go.
//
//	gone already, or deleted now    the marks say what becomes of the contents
//	changed since it was judged     marks off: it stays for now
//	refused                         marks off: it stays
//	no clear answer                 marks stay: it may have been deleted
func (r *Reconciler) deleteMarked(ctx context.Context, s *v1alpha1.SnapshotSchedule, target client.Object, seen sight, goes []Verdict, whole *whole) error {
	marked, err := r.markAll(ctx, s, seen, goes, whole)
	if err == nil {
		uid, version := target.GetUID(), target.GetResourceVersion()
		err = r.Client.Delete(ctx, target, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		err = fmt.Errorf("delete %s: %w", target.GetName(), err)
		if !refuses(err) {
			return err
		}
	}
	for _, content := range marked {
		if failed := unmark(ctx, r.Client, content); failed != nil {
			return errors.Join(err, failed) // finisher tries again
		}
	}
	return err
}

// markAll marks the contents that would be left behind, and answers those that
// it did mark, also where it fails.
func (r *Reconciler) markAll(ctx context.Context, s *v1alpha1.SnapshotSchedule, seen sight, goes []Verdict, whole *whole) ([]client.Object, error) {
	var marked []client.Object
	mark := func(k kind, name string, uid types.UID) error {
		content, err := r.mark(ctx, k, name, uid, s)
		if content != nil {
			marked = append(marked, content)
		}
		return err
	}
	var all []*snapshotv1.VolumeSnapshot
	for _, v := range goes {
		if snapshot := seen.snapshots[v.UID]; snapshot != nil { // else it was never cut
			all = append(all, snapshot)
		}
	}
	if whole != nil {
		all = append(all, whole.unmarked...)
	}
	for _, snapshot := range all {
		if err := mark(single, contentOf(snapshot), snapshot.UID); err != nil {
			return marked, err
		}
	}
	// A group's own content stands for no cloud snapshot besides its members'.
	if whole != nil && contentsOf(s) == v1alpha1.DeleteContents {
		if err := mark(group, contentOfGroup(whole.object), whole.object.UID); err != nil {
			return marked, err
		}
	}
	return marked, nil
}

// errChanged is that of a group that has changed since it was judged.
var errChanged = errors.New("it has changed since it was judged")

// errHeld is that of a group that is held, and that nobody knew to be one of the
// schedule's when its members were judged: its marks were taken off.
var errHeld = apierrors.NewForbidden(groupv1.Resource("volumegroupsnapshots"), "", errors.New("it is held"))

// errForeign is that of a group with a member that is none of the schedule's, or
// that is to be kept.
var errForeign = apierrors.NewForbidden(groupv1.Resource("volumegroupsnapshots"), "", errors.New("it is not the schedule's alone"))

// wholeGroup is the VolumeGroupSnapshot of a batch; nil: there is none any more,
// and each member may go by itself. All members go with it, so:
//
//	the group or a member has changed since      a conflict: it is judged anew
//	it is held, and was not known as a group     refused
//	a member is not in the batch                 refused: somebody's, or kept
//	a member that nobody has marked: the         refused: its mark is on the way, or nobody
//	 schedule lives                              can tell whose copy it is
//	the same, the schedule is being deleted      goes with the group: nobody marks it any more
func (r *Reconciler) wholeGroup(ctx context.Context, s *v1alpha1.SnapshotSchedule, seen sight, b batch) (*whole, error) {
	w := &whole{object: &groupv1.VolumeGroupSnapshot{}}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: b.group}, w.object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read VolumeGroupSnapshot %s/%s: %w", s.Namespace, b.group, err)
	}
	judged := seen.groups[b.group]
	if judged != nil && judged.ResourceVersion != w.object.ResourceVersion {
		return nil, apierrors.NewConflict(groupv1.Resource("volumegroupsnapshots"), b.group, errChanged)
	}
	if judged == nil && copies.HoldOf(w.object) != "" {
		return nil, fmt.Errorf("delete VolumeGroupSnapshot %s: %w", b.group, errHeld)
	}
	var all snapshotv1.VolumeSnapshotList
	if err := r.Live.List(ctx, &all, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list the members of group %s/%s: %w", s.Namespace, b.group, err)
	}
	goes := map[types.UID]bool{}
	for _, v := range b.members {
		goes[v.UID] = true
	}
	for i := range all.Items {
		m := &all.Items[i]
		switch {
		case copies.GroupOf(m) != b.group || m.DeletionTimestamp != nil:
		case goes[m.UID] && m.ResourceVersion != seen.snapshots[m.UID].ResourceVersion:
			return nil, apierrors.NewConflict(snapshotv1.Resource("volumesnapshots"), m.Name, errChanged)
		case goes[m.UID]:
		case judged != nil && s.DeletionTimestamp != nil && m.Labels[v1alpha1.LabelSchedule] == "" && copies.HoldOf(m) == "":
			w.unmarked = append(w.unmarked, m)
		default:
			return nil, fmt.Errorf("delete VolumeGroupSnapshot %s with its member %s: %w", b.group, m.Name, errForeign)
		}
	}
	return w, nil
}

// tellDeleted tells of copies that go, and why.
func (r *Reconciler) tellDeleted(ctx context.Context, s *v1alpha1.SnapshotSchedule, seen sight, b batch) {
	for _, v := range b.members {
		logr.FromContextOrDiscard(ctx).Info("Deleted a copy", "snapshot", v.Name, "uid", v.UID, "cut", v.At(), "why", v.Why)
		r.Events.Eventf(s, seen.object(v.Member), corev1.EventTypeNormal, "CopyExpired", "Expire",
			"VolumeSnapshot %s of %s was deleted: %s", v.Name, v.At().UTC().Format(time.RFC3339), v.Why)
	}
}

// tellRefused tells of a copy that should go and may not.
func (r *Reconciler) tellRefused(s *v1alpha1.SnapshotSchedule, seen sight, b batch, told refusal) {
	v := b.members[0]
	r.Events.Eventf(s, seen.object(v.Member), corev1.EventTypeWarning, v1alpha1.ReasonDeletionRefused, "Expire",
		"VolumeSnapshot %s stays, and is tried again in %v: %s", v.Name, told.after, cut(told.why, maxWhy))
}
