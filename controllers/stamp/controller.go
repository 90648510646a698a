package stamp

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler stamps claims.
type Reconciler struct {
	Client client.Client
	Events events.EventRecorder
}

// Add makes the reconciler part of a manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("stamp").
		For(&corev1.PersistentVolumeClaim{}).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(r.claimsOf)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
	if err != nil {
		return fmt.Errorf("add the stamps of claims: %w", err)
	}
	return nil
}

// claimsOf are the claims that may be a set's, by name.
func (r *Reconciler) claimsOf(ctx context.Context, o client.Object) []ctrl.Request {
	set, ok := o.(*appsv1.StatefulSet)
	if !ok || len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &claims, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List the claims of a StatefulSet", "namespace", set.Namespace, "name", set.Name)
		return nil
	}
	var requests []ctrl.Request
	for i := range claims.Items {
		for _, template := range set.Spec.VolumeClaimTemplates {
			if name := claims.Items[i].Name; strings.HasPrefix(name, template.Name+"-"+set.Name+"-") {
				requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: set.Namespace, Name: name}})
			}
		}
	}
	return requests
}

// Reconcile stamps one claim.
func (r *Reconciler) Reconcile(ctx context.Context, claim *corev1.PersistentVolumeClaim) (ctrl.Result, error) {
	if claim.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var sets appsv1.StatefulSetList
	if err := r.Client.List(ctx, &sets, client.InNamespace(claim.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the StatefulSets of namespace %s: %w", claim.Namespace, err)
	}
	owners := Owners(claim, sets.Items)
	switch {
	case len(owners) == 0: // of no living set: what it carries stays true
		return ctrl.Result{}, nil
	case len(owners) > 1:
		r.Events.Eventf(claim, nil, corev1.EventTypeWarning, "AmbiguousOwner", "Stamp",
			"the claim fits StatefulSets %s (template %s) and %s (template %s) by name and labels: it is not stamped, and will not be retired",
			owners[0].Set.Name, owners[0].Template, owners[1].Set.Name, owners[1].Template)
		return ctrl.Result{}, nil
	case owners[0].on(claim):
		return ctrl.Result{}, nil
	}
	old := claim.DeepCopy()
	owners[0].write(claim)
	if err := r.Client.Patch(ctx, claim, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("stamp claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return ctrl.Result{}, nil
}
