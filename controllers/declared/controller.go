package declared

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/expansion"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

const (
	// refusedFor is how long a claim whose growth was refused is left alone.
	refusedFor = 10 * time.Minute
	// later is when a set is looked at again that something blocks: what does may
	// be a class, a budget or a quota, which are not all watched.
	later = time.Minute
)

// Reasons of the events on StatefulSets.
const (
	// ReasonGrowing: claims were asked to grow.
	ReasonGrowing = "ClaimsGrow"
	// ReasonGrown: they have all grown.
	ReasonGrown = "ClaimsGrown"
	// ReasonBlocked: some cannot grow, and why.
	ReasonBlocked = "GrowthBlocked"
)

// Options are what a Reconciler works with. All must be given.
type Options struct {
	Client client.Client
	World  *world.World
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Reconciler grows claims to what their sets declare.
type Reconciler struct {
	Options

	mu      sync.Mutex
	told    map[types.NamespacedName]string
	growing map[types.NamespacedName]bool // since this leader leads
	refused map[types.UID]refusal         // by claim
}

// refusal is what was said to a growth, and when.
type refusal struct {
	at   time.Time
	size string
	why  string
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, told: map[types.NamespacedName]string{}, growing: map[types.NamespacedName]bool{}, refused: map[types.UID]refusal{}}
}

// Add makes the reconciler part of a manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("declared").
		For(&appsv1.StatefulSet{}, builder.WithPredicates(predicate.Or(predicate.AnnotationChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(setOf)).
		Watches(&v1alpha1.StoragePolicy{}, handler.EnqueueRequestsFromMapFunc(r.declaring), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.declaring)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), r))
	if err != nil {
		return fmt.Errorf("add the sizes that StatefulSets declare: %w", err)
	}
	return nil
}

// setOf is the set of a claim, by its stamp.
func setOf(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetAnnotations()[v1alpha1.AnnotationSetName]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// declaring are the sets that declare sizes.
func (r *Reconciler) declaring(ctx context.Context, _ client.Object) []ctrl.Request {
	var sets appsv1.StatefulSetList
	if err := r.Client.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List StatefulSets")
		return nil
	}
	var requests []ctrl.Request
	for i := range sets.Items {
		if _, is := sets.Items[i].Annotations[v1alpha1.AnnotationSize]; is {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
	return requests
}

// Reconcile grows the claims of one set.
func (r *Reconciler) Reconcile(ctx context.Context, set *appsv1.StatefulSet) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(set)
	_, declares := set.Annotations[v1alpha1.AnnotationSize]
	if !declares || set.DeletionTimestamp != nil || (policy.Namespace{Name: set.Namespace}).IsSystem() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.told, key)
		delete(r.growing, key)
		return ctrl.Result{}, nil
	}
	seen, err := r.observe(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := Decide(seen)
	var grow []string
	var failed []error
	for _, g := range plan.Grow { // one claim's failure does not stop the others
		asked, refused, err := r.grow(ctx, g)
		switch {
		case refused != "":
			plan.Problems = append(plan.Problems, fmt.Sprintf("claim %s: growing it to %s was refused: %s", g.Claim.Name, g.To.String(), refused))
		case asked:
			grow = append(grow, fmt.Sprintf("%s to %s", g.Claim.Name, g.To.String()))
		case apierrors.IsInternalError(err): // most often a webhook that does not answer
			failed = append(failed, err)
			plan.Problems = append(plan.Problems, fmt.Sprintf("claim %s: growing it to %s fails, and is tried again: %v", g.Claim.Name, g.To.String(), err))
		default:
			failed = append(failed, err)
			plan.Growing = append(plan.Growing, g.Claim.Name)
		}
	}
	r.report(set, grow, plan)
	if err := errors.Join(failed...); err != nil {
		return ctrl.Result{}, err
	}
	if len(plan.Problems) > 0 || len(plan.Growing) > 0 {
		return ctrl.Result{RequeueAfter: later}, nil
	}
	return ctrl.Result{}, nil
}

// observe reads what there is to plan by.
func (r *Reconciler) observe(ctx context.Context, set *appsv1.StatefulSet) (Observed, error) {
	seen := Observed{Set: set, Bounds: map[string]Bound{}, Blocked: map[string]string{}, JustAsked: map[string]bool{}}
	var err error
	if seen.Claims, err = r.World.Claims(ctx, set.Namespace); err != nil {
		return seen, err
	}
	sizes, _ := statefulset.Declared(set)
	for template, size := range sizes {
		p, _, err := statefulset.Growing(ctx, r.World, set, template)
		if err != nil {
			return seen, err
		}
		if p != nil {
			seen.Bounds[template] = Bound{Policy: p.Name, MaxSize: p.Expansion.MaxSize}
		}
		for _, c := range statefulset.ClaimsOf(set, template, seen.Claims) {
			seen.JustAsked[c.Name] = expansion.JustModified(r.Clock.Now(), c)
			if seen.Blocked[c.Name], err = r.blocked(ctx, c, size); err != nil {
				return seen, err
			}
		}
	}
	return seen, nil
}

// blocked says why a claim cannot be asked to grow now; empty: it can. The policy
// that bounds it is its own: by its labels and class that may be another than its
// template's.
func (r *Reconciler) blocked(ctx context.Context, c *corev1.PersistentVolumeClaim, size resource.Quantity) (string, error) {
	name, class, err := r.World.ClassOfClaim(ctx, c.Annotations, &c.Spec)
	if err != nil {
		return "", err
	}
	p, doubt, err := statefulset.GrowingOf(ctx, r.World, c)
	switch {
	case err != nil:
		return "", err
	case doubt != "":
		return doubt, nil
	case p != nil && size.Cmp(p.Expansion.MaxSize) > 0:
		return fmt.Sprintf("it is under StoragePolicy %s, whose expansion.maxSize is %s", p.Name, p.Expansion.MaxSize.String()), nil
	case class == nil:
		return fmt.Sprintf("its StorageClass %q is not there, and without it volumes do not grow", name), nil
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return fmt.Sprintf("its StorageClass %s does not let volumes grow: set its allowVolumeExpansion to true", name), nil
	}
	if why := held(c, size); why != "" {
		return why, nil
	}
	now := r.Clock.Now()
	if why := expansion.Spent(now, p, class.Provisioner, c); why != "" {
		return why, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, is := r.refused[c.UID]; is && f.size == size.String() && now.Sub(f.at) < refusedFor {
		return fmt.Sprintf("growing it to %s was refused: %s", size.String(), f.why), nil
	}
	delete(r.refused, c.UID)
	return "", nil
}

// held says that a claim's own annotation holds it to less than a size.
func held(c *corev1.PersistentVolumeClaim, size resource.Quantity) string {
	text, is := c.Annotations[v1alpha1.AnnotationMaxSize]
	if !is {
		return ""
	}
	most, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		return fmt.Sprintf("its annotation %s is %q, and no size: write it as 20Gi", v1alpha1.AnnotationMaxSize, text)
	case size.Cmp(most) > 0:
		return fmt.Sprintf("its annotation %s holds it to %s", v1alpha1.AnnotationMaxSize, most.String())
	}
	return ""
}

// grow asks for a size, and says whether it did. What somebody refuses is no error
// of ours; nor is it one that the claim has changed since: it is looked at again.
func (r *Reconciler) grow(ctx context.Context, g Growth) (asked bool, refused string, err error) {
	claim := g.Claim.DeepCopy()
	record, err := expansion.Recorded(r.Clock.Now(), g.Claim, g.To.Value())
	if err != nil {
		return false, "", fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.AnnotationModifications, record)
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = g.To
	err = r.Client.Patch(ctx, claim, client.MergeFromWithOptions(g.Claim, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		return true, "", nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, "", nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused[claim.UID] = refusal{at: r.Clock.Now(), size: g.To.String(), why: err.Error()}
		return false, err.Error(), nil
	}
	return false, "", fmt.Errorf("ask for %s of claim %s/%s: %w", g.To.String(), claim.Namespace, claim.Name, err)
}

// maxNote is what the API server takes of an event's note, in bytes.
const maxNote = 1024

// report tells what is new.
func (r *Reconciler) report(set *appsv1.StatefulSet, grow []string, plan Plan) {
	key := client.ObjectKeyFromObject(set)
	r.mu.Lock()
	grown := r.growing[key] && len(grow) == 0 && len(plan.Growing) == 0 && len(plan.Problems) == 0
	if r.growing[key] = !grown && (r.growing[key] || len(grow) > 0); !r.growing[key] {
		delete(r.growing, key)
	}
	problems := plan.problems()
	news := problems != "" && r.told[key] != problems
	if r.told[key] = problems; problems == "" {
		delete(r.told, key)
	}
	r.mu.Unlock()
	tell := func(kind, reason, note string) {
		r.Events.Eventf(set, nil, kind, reason, "GrowClaims", "%s", policy.Short(note, maxNote))
	}
	if len(grow) > 0 {
		tell(corev1.EventTypeNormal, ReasonGrowing, "as the annotation "+v1alpha1.AnnotationSize+" declares, claims grow: "+strings.Join(grow, ", "))
	}
	if news {
		tell(corev1.EventTypeWarning, ReasonBlocked, problems)
	}
	if grown {
		tell(corev1.EventTypeNormal, ReasonGrown, "the claims have the sizes that the annotation "+v1alpha1.AnnotationSize+" declares: "+strings.Join(plan.Done, ", "))
	}
}
