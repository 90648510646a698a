package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is who we are among the owners of a set's fields.
const fieldManager = client.FieldOwner("holdfast-recreate")

// probeName is a name that no set has, for dry runs.
const probeName = "holdfast-dry-run-7c1f"

// refusal says why the API server will not do something, however often it is
// asked; empty: it may, another time.
func refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return ""
	default:
		if code >= 400 && code < 500 {
			return status.Status().Message
		}
		return ""
	}
}

// only says which very set is meant: the one that was seen, as it was seen.
func only(set *appsv1.StatefulSet) client.Preconditions {
	return client.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion}
}

// try asks the API server what it would do. Nothing is changed.
func (r *Reconciler) try(ctx context.Context, seen Observed, step Step) (*Tried, error) {
	set := seen.Set
	native := sized(set.DeepCopy(), step.Sizes)
	err := r.Client.Patch(ctx, native, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{}), client.DryRunAll, fieldManager)
	if err == nil {
		return &Tried{Native: true}, nil
	}
	if refusal(err) == "" {
		return nil, fmt.Errorf("try to change the template of StatefulSet %s: %w", client.ObjectKeyFromObject(set), err)
	}
	record := recordOf(set, step.Sizes, seen.Pods, seen.Record)
	if stored, err := record.secret(r.Namespace); err != nil {
		return nil, err
	} else if n := len(stored.Data[objectKey]) + len(stored.Data[recordKey]); n > corev1.MaxSecretSize {
		return &Tried{Refused: fmt.Sprintf("its saved copy would have %d bytes, and a Secret holds %d", n, corev1.MaxSecretSize)}, nil
	}
	for what, try := range map[string]func() error{
		"its deletion": func() error {
			return r.Client.Delete(ctx, set.DeepCopy(), only(set), client.PropagationPolicy(metav1.DeletePropagationOrphan), client.DryRunAll)
		},
		"its creation": func() error { return r.tryCreate(ctx, record, step) },
	} {
		err := try()
		if why := refusal(err); why != "" {
			return &Tried{Refused: fmt.Sprintf("a dry run of %s is refused: %s", what, why)}, nil
		}
		var differs *differsError
		if errors.As(err, &differs) {
			return &Tried{Refused: err.Error()}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("try %s of StatefulSet %s: %w", what, record.key(), err)
		}
	}
	return &Tried{}, nil
}

// differsError says that the API server would make something else of a set.
type differsError struct{ name string }

func (e *differsError) Error() string {
	return fmt.Sprintf("a dry run of its creation changes more of its spec than sizes (a webhook's doing, or a default that is new): as it would be made, its Pods could restart; compare with `kubectl get statefulset %s -o yaml`", e.name)
}

// tryCreate asks for the set as it is to be in the end under its own name, where
// all is judged before the API server finds that it is there; and under another
// name, to see what would be made.
func (r *Reconciler) tryCreate(ctx context.Context, record *Record, step Step) error {
	final := record.anew(step.Sizes)
	if record.WhenDeleted != whenDeleted(final) {
		final.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = record.WhenDeleted
	}
	if err := r.Client.Create(ctx, final, client.DryRunAll, fieldManager); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	want := record.anew(step.Sizes)
	made := want.DeepCopy()
	made.Name = probeName
	if err := r.Client.Create(ctx, made, client.DryRunAll, fieldManager); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(made.Spec, want.Spec) {
		return &differsError{record.Name}
	}
	return nil
}

// take does one step. done: there is nothing to do after it.
func (r *Reconciler) take(ctx context.Context, seen Observed, step Step) (done bool, err error) {
	log := logr.FromContextOrDiscard(ctx)
	log.Info("Make a StatefulSet anew", "step", step.Kind, "why", step.Why)
	switch step.Kind {
	case Change:
		return true, r.change(ctx, seen, step)
	case Save:
		record := recordOf(seen.Set, step.Sizes, seen.Pods, seen.Record)
		return false, r.write(ctx, record)
	case Retain:
		return false, r.setWhenDeleted(ctx, seen.Set, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	case Release:
		return false, r.release(ctx, seen)
	case Delete:
		return false, r.delete(ctx, seen)
	case Reopen:
		seen.Record.Stage = Saved
		return false, r.write(ctx, seen.Record)
	case Create:
		return false, r.create(ctx, seen, step)
	case Note:
		seen.Record.Stage, seen.Record.NewUID = Created, seen.Set.UID
		return false, r.write(ctx, seen.Record)
	case Finish:
		return true, r.finish(ctx, seen)
	case Abort:
		return true, r.abort(ctx, seen, step)
	default:
		log.Info("A StatefulSet is not made anew after all", "why", step.Why)
		return true, r.forget(ctx, seen.Record)
	}
}

// change changes the template of a set, where the API server lets it.
func (r *Reconciler) change(ctx context.Context, seen Observed, step Step) error {
	set := sized(seen.Set.DeepCopy(), step.Sizes)
	if err := r.Client.Patch(ctx, set, client.MergeFromWithOptions(seen.Set, client.MergeFromWithOptimisticLock{}), fieldManager); err != nil {
		return fmt.Errorf("change the template of StatefulSet %s: %w", client.ObjectKeyFromObject(set), err)
	}
	r.tell(set, corev1.EventTypeNormal, ReasonTemplateChanged, sentence(Compare(seen.Set, seen.Claims))+": the template now asks for that too")
	return nil
}

// write stores a record. It was not changed since it was read, or not there.
func (r *Reconciler) write(ctx context.Context, record *Record) error {
	stored, err := record.secret(r.Namespace)
	if err != nil {
		return err
	}
	if record.stored == nil {
		err = r.Client.Create(ctx, stored)
	} else {
		err = r.Client.Update(ctx, stored)
	}
	if err != nil {
		return fmt.Errorf("write the record of StatefulSet %s as %s: %w", record.key(), record.Stage, err)
	}
	r.mu.Lock()
	r.records[record.key()] = true
	r.mu.Unlock()
	return nil
}

// setWhenDeleted says what becomes of the claims of a set that is deleted.
func (r *Reconciler) setWhenDeleted(ctx context.Context, set *appsv1.StatefulSet, to appsv1.PersistentVolumeClaimRetentionPolicyType) error {
	changed := set.DeepCopy()
	if changed.Spec.PersistentVolumeClaimRetentionPolicy == nil {
		changed.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	changed.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = to
	if err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{}), fieldManager); err != nil {
		return fmt.Errorf("set whenDeleted of StatefulSet %s to %s: %w", client.ObjectKeyFromObject(set), to, err)
	}
	*set = *changed
	return nil
}

// release takes the set off the owners of claims. The StatefulSet controller does
// so too where the set has a Pod for the claim; it leaves those of other ordinals.
func (r *Reconciler) release(ctx context.Context, seen Observed) error {
	for _, c := range ownedBy(seen.Set.UID, seen.Claims) {
		free := c.DeepCopy()
		free.OwnerReferences = slices.DeleteFunc(free.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == seen.Set.UID })
		err := r.Client.Patch(ctx, free, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{}), fieldManager)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take StatefulSet %s off the owners of claim %s: %w", seen.Set.Name, c.Name, err)
		}
	}
	return nil
}

// delete deletes the set alone, and only as it was seen. That this is being done
// is written down first.
func (r *Reconciler) delete(ctx context.Context, seen Observed) error {
	seen.Record.Stage = Deleting
	if err := r.write(ctx, seen.Record); err != nil {
		return err
	}
	err := r.Client.Delete(ctx, seen.Set.DeepCopy(), only(seen.Set), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete StatefulSet %s alone: %w", seen.Record.key(), err)
	}
	return nil
}

// supersede keeps a record for people: nothing more is done by it, also when the
// set that is in the way goes.
func (r *Reconciler) supersede(ctx context.Context, record *Record) error {
	if record.Stage == Superseded {
		return nil
	}
	record.Stage = Superseded
	return r.write(ctx, record)
}

// create makes the set again. Where the API server refuses it with the new sizes
// it is made as it was the next time, and so on by turns.
func (r *Reconciler) create(ctx context.Context, seen Observed, step Step) error {
	key := seen.Record.key()
	err := r.Client.Create(ctx, seen.Record.anew(step.Sizes), fieldManager)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // whose it is is seen next
		return nil
	case refusal(err) != "":
		r.mu.Lock()
		r.refused[key] = !r.refused[key]
		r.mu.Unlock()
		r.hold(key)
		r.tell(seen.Record.Object, corev1.EventTypeWarning, ReasonRecreateFailed, fmt.Sprintf(
			"the StatefulSet cannot be made again yet, its Pods run on without it, and it is tried every second; it is saved in Secret %s/%s: %s", r.Namespace, nameOf(key), refusal(err)))
	}
	return fmt.Errorf("make StatefulSet %s again: %w", key, err)
}

// finish puts back what was changed of a set that was made anew.
func (r *Reconciler) finish(ctx context.Context, seen Observed) error {
	set, record := seen.Set, seen.Record
	note := ""
	if err := r.putBack(ctx, set, record); refusal(err) != "" {
		note = fmt.Sprintf("; its whenDeleted stays Retain: %s", refusal(err))
	} else if err != nil {
		return err
	}
	if err := r.ownFields(ctx, set, record); err != nil {
		if refusal(err) == "" {
			return err
		}
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot put back who owns the fields of a StatefulSet")
	}
	if err := r.forget(ctx, record); err != nil {
		return err
	}
	r.metrics.recreates.WithLabelValues("completed").Inc()
	r.tell(set, corev1.EventTypeNormal, ReasonRecreated, "the StatefulSet was made anew"+told(record, seen.Pods, set)+note)
	return nil
}

// putBack gives a set the whenDeleted that its user wants.
func (r *Reconciler) putBack(ctx context.Context, set *appsv1.StatefulSet, record *Record) error {
	if whenDeleted(set) == record.WhenDeleted || whenDeleted(set) != appsv1.RetainPersistentVolumeClaimRetentionPolicyType {
		return nil
	}
	return r.setWhenDeleted(ctx, set, record.WhenDeleted)
}

// ownFields gives the fields of a set back to those who owned them: with
// server-side apply, who does not own a field can neither change nor remove it
// without a conflict. The API server takes a list that changes nothing else.
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
func (r *Reconciler) ownFields(ctx context.Context, set *appsv1.StatefulSet, record *Record) error {
	fields := fieldsOf(record.Object.ManagedFields, set.ManagedFields)
	if len(fields) == 0 || equality.Semantic.DeepEqual(fields, set.ManagedFields) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": set.ResourceVersion, "managedFields": fields}})
	if err != nil {
		return fmt.Errorf("write the owners of the fields of StatefulSet %s: %w", record.key(), err)
	}
	if err := r.Client.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch), fieldManager); err != nil {
		return fmt.Errorf("put back the owners of the fields of StatefulSet %s: %w", record.key(), err)
	}
	return nil
}

// fieldsOf are the owners of fields as they were, with those that came since, and
// without us. Of status the newest counts.
func fieldsOf(was, now []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var fields []metav1.ManagedFieldsEntry
	same := func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource
	}
	for _, f := range was {
		if f.Manager != string(fieldManager) && f.Subresource == "" {
			fields = append(fields, f)
		}
	}
	for _, f := range now {
		if f.Manager != string(fieldManager) && !slices.ContainsFunc(fields, func(g metav1.ManagedFieldsEntry) bool { return same(f, g) }) {
			fields = append(fields, f)
		}
	}
	return fields
}

// abort puts back what was changed of a set that is not made anew after all.
func (r *Reconciler) abort(ctx context.Context, seen Observed, step Step) error {
	if err := r.putBack(ctx, seen.Set, seen.Record); err != nil {
		return err
	}
	if err := r.forget(ctx, seen.Record); err != nil {
		return err
	}
	r.hold(seen.Record.key())
	r.metrics.recreates.WithLabelValues("aborted").Inc()
	r.tell(seen.Set, corev1.EventTypeWarning, ReasonRecreateBlocked, "the set is not made anew after all, and is as it was: "+step.Why)
	return nil
}

// forget drops a record.
func (r *Reconciler) forget(ctx context.Context, record *Record) error {
	stored := record.stored
	err := r.Client.Delete(ctx, stored.DeepCopy(), client.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("drop the record of StatefulSet %s: %w", record.key(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.records, record.key())
	delete(r.refused, record.key())
	return nil
}
