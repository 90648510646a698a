package policyschedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/claim"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// Reconciler gives schedules. Its requests are names of policies as schedules
// carry them in their label, so that those of a policy that is gone are found.
type Reconciler struct {
	Client client.Client
	World  *world.World
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Add makes the reconciler part of a manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	every := handler.EnqueueRequestsFromMapFunc(r.giving)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("policyschedule").
		Watches(&v1alpha1.StoragePolicy{}, handler.EnqueueRequestsFromMapFunc(ofPolicy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.SnapshotSchedule{}, handler.EnqueueRequestsFromMapFunc(r.concerned), builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesMetadata(&corev1.Namespace{}, every, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&storagev1.StorageClass{}, every, builder.WithPredicates(predicate.GenerationChangedPredicate{})). // its provisioner never changes
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the schedules of policies: %w", err)
	}
	return nil
}

func request(label string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: label}}
}

func ofPolicy(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{request(LabelOf(o.GetName()))}
}

// giving are the policies that give schedules.
func (r *Reconciler) giving(ctx context.Context, _ client.Object) []ctrl.Request {
	var requests []ctrl.Request
	for _, p := range r.policies(ctx) {
		if len(p.Given()) > 0 {
			requests = append(requests, request(LabelOf(p.Name)))
		}
	}
	return requests
}

// concerned are the policies that a schedule is about: the one that it says gave
// it, and those that give one of its name, in whose way it may stand, or have stood.
func (r *Reconciler) concerned(ctx context.Context, o client.Object) []ctrl.Request {
	var requests []ctrl.Request
	if label, is := o.GetLabels()[v1alpha1.LabelPolicy]; is {
		requests = append(requests, request(label))
	}
	for _, p := range r.policies(ctx) {
		if slices.ContainsFunc(p.Given(), func(g policy.Given) bool { return g.Object == o.GetName() }) {
			requests = append(requests, request(LabelOf(p.Name)))
		}
	}
	return requests
}

func (r *Reconciler) policies(ctx context.Context) []*policy.Policy {
	policies, err := r.World.Policies(ctx)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List the policies that give schedules")
	}
	return policies
}

// Reconcile gives the schedules of one policy.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	stored, err := r.stored(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	seen := Observed{Label: req.Name}
	if stored != nil {
		ready, errs := policy.Compile(stored)
		if ready == nil {
			return r.save(ctx, stored, unreadable(stored.Status.Conditions, stored, errs.ToAggregate(), r.Clock.Now()), nil)
		}
		seen.Policy = ready
	}
	if err := r.observe(ctx, &seen); err != nil {
		return ctrl.Result{}, err
	}
	plan := Decide(seen)
	refused, moved := r.apply(ctx, req.Name, plan)
	var result ctrl.Result
	if moved {
		result.RequeueAfter = again
	}
	if stored == nil {
		return result, refused
	}
	saved, err := r.save(ctx, stored, Report(stored.Status.Conditions, stored, plan, refused, r.Clock.Now()), plan.Edited)
	result.RequeueAfter = max(result.RequeueAfter, saved.RequeueAfter)
	return result, errors.Join(refused, err)
}

// stored is the policy whose schedules have the label; nil: there is none.
func (r *Reconciler) stored(ctx context.Context, label string) (*v1alpha1.StoragePolicy, error) {
	var list v1alpha1.StoragePolicyList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list StoragePolicies: %w", err)
	}
	for i := range list.Items {
		if LabelOf(list.Items[i].Name) == label {
			return list.Items[i].DeepCopy(), nil
		}
	}
	return nil, nil
}

// observe reads what the plan is made by. What the informers hold is only read.
func (r *Reconciler) observe(ctx context.Context, seen *Observed) error {
	var schedules v1alpha1.SnapshotScheduleList
	if err := r.Client.List(ctx, &schedules, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list SnapshotSchedules: %w", err)
	}
	seen.Schedules = schedules.Items
	namespaces := metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.Client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		seen.Namespaces = append(seen.Namespaces, policy.Namespace{Name: n.Name, Labels: n.Labels, Terminating: n.DeletionTimestamp != nil})
	}
	if seen.Policy == nil || len(seen.Policy.Given()) == 0 || len(seen.Policy.Provisioners()) == 0 {
		return nil
	}
	return r.observeClasses(ctx, seen)
}

// observeClasses finds the classes of a policy's provisioners: those that exist,
// and those that claims were made of and that are gone, as admission sees them.
func (r *Reconciler) observeClasses(ctx context.Context, seen *Observed) error {
	var classes storagev1.StorageClassList
	if err := r.Client.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list StorageClasses: %w", err)
	}
	exist := map[string]bool{}
	for i := range classes.Items {
		c := &classes.Items[i]
		exist[c.Name] = true
		if slices.Contains(seen.Policy.Provisioners(), c.Provisioner) {
			seen.Classes = append(seen.Classes, c.Name)
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	gone := map[string]map[string]bool{} // by namespace
	for i := range claims.Items {
		c := &claims.Items[i]
		class := c.Spec.StorageClassName
		if class == nil || *class == "" || exist[*class] || !slices.Contains(seen.Policy.Provisioners(), claim.ProvisionerOf(c)) {
			continue
		}
		if gone[c.Namespace] == nil {
			gone[c.Namespace] = map[string]bool{}
		}
		gone[c.Namespace][*class] = true
	}
	seen.Gone = map[string][]string{}
	for namespace, names := range gone {
		seen.Gone[namespace] = slices.Sorted(maps.Keys(names))
	}
	return nil
}

// apply carries a plan out. One refusal does not stop the others. moved: a schedule
// has changed since the plan was made, which is no refusal: it is looked at again.
func (r *Reconciler) apply(ctx context.Context, label string, plan Plan) (_ error, moved bool) {
	var refused []error
	for _, s := range plan.Create {
		err := r.Client.Create(ctx, s)
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			continue // the informer is about to show it, and what it is
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("make SnapshotSchedule %s/%s: %w", s.Namespace, s.Name, err))
		}
	}
	for _, c := range plan.Change {
		err := r.Client.Patch(ctx, c.To, client.MergeFromWithOptions(c.From, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			moved = true
		} else if client.IgnoreNotFound(err) != nil {
			refused = append(refused, fmt.Errorf("write SnapshotSchedule %s/%s: %w", c.To.Namespace, c.To.Name, err))
		}
	}
	for _, s := range plan.Delete {
		err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		switch {
		case apierrors.IsNotFound(err):
		case apierrors.IsConflict(err):
			moved = true
		case err != nil:
			refused = append(refused, fmt.Errorf("delete SnapshotSchedule %s/%s: %w", s.Namespace, s.Name, err))
		default:
			r.Events.Eventf(s, nil, corev1.EventTypeNormal, "ScheduleWithdrawn", "Withdraw",
				"StoragePolicy %s no longer gives this schedule: it was deleted. Its snapshots stay and none ages out: kubectl get volumesnapshots -l %s=%s",
				label, v1alpha1.LabelSchedule, LabelOf(s.Name))
		}
	}
	return errors.Join(refused...), moved
}

// again is how long after a conflict of writes one looks again.
const again = time.Second

// save writes the conditions of a policy where they differ, and then tells the
// owners of schedules that were edited since.
func (r *Reconciler) save(ctx context.Context, p *v1alpha1.StoragePolicy, conditions []metav1.Condition, edited []string) (ctrl.Result, error) {
	if equality.Semantic.DeepEqual(p.Status.Conditions, conditions) {
		return ctrl.Result{}, nil
	}
	old := p.DeepCopy()
	p.Status.Conditions = conditions
	err := r.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err): // the audit writes there too
		return ctrl.Result{RequeueAfter: again}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("write the status of StoragePolicy %s: %w", p.Name, err)
	}
	r.tell(ctx, p, old.Status.Conditions, edited)
	return ctrl.Result{}, nil
}

// tell makes events of conditions that have turned for the worse, and on each
// schedule that is edited and was not named before.
func (r *Reconciler) tell(ctx context.Context, p *v1alpha1.StoragePolicy, old []metav1.Condition, edited []string) {
	given, before := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSchedulesGiven), meta.FindStatusCondition(old, v1alpha1.ConditionSchedulesGiven)
	if given != nil && given.Status == metav1.ConditionFalse && (before == nil || before.Message != given.Message) {
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, given.Reason, "GiveSchedules", "%s", given.Message)
	}
	var told []string // words, among them the names of schedules
	if c := meta.FindStatusCondition(old, v1alpha1.ConditionSchedulesEdited); c != nil {
		told = strings.FieldsFunc(c.Message, func(r rune) bool { return strings.ContainsRune("(), ", r) })
	}
	for _, full := range edited {
		if slices.Contains(told, full) {
			continue
		}
		namespace, name, _ := strings.Cut(full, "/")
		s := &v1alpha1.SnapshotSchedule{}
		if r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, s) != nil {
			continue // it has gone since
		}
		r.Events.Eventf(s, p, corev1.EventTypeWarning, v1alpha1.ReasonEdited, "GiveSchedules",
			"the schedule was edited and no longer follows StoragePolicy %s: changes of the policy are not written over it; the annotation %s=true hands it back", p.Name, v1alpha1.AnnotationFollowPolicy)
	}
}
