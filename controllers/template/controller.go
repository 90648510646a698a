package template

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/policy"
	"github.com/holdfast-dev/holdfast/webhooks/statefulset"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

const (
	// soon is when the cluster's controllers are looked after again that a set
	// waits for which is being made anew.
	soon = time.Second
	// later is when a set is looked at again that is not stable yet: its Pods are
	// not watched.
	later = time.Minute
	// held is how long a set is left alone that the API server does not take anew.
	held = 10 * time.Minute
	// mostSteps bounds the steps of one pass. There are ten.
	mostSteps = 30
)

// Options are what a Reconciler works with. All must be given.
type Options struct {
	// Client reads from informers and writes, Live reads from the API server.
	Client client.Client
	Live   client.Reader
	World  *world.World
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Namespace is the manager's own, where the records are.
	Namespace string
	// Recreate says whether the install may make sets anew.
	Recreate bool
	Registry prometheus.Registerer
}

// Reconciler keeps templates in step. Only the leader may run it: it alone writes
// the records.
type Reconciler struct {
	Options
	metrics *instruments

	mu      sync.Mutex
	loaded  bool
	records map[types.NamespacedName]bool      // sets that have one
	told    map[types.NamespacedName]string    // what was told of a set last
	holds   map[types.NamespacedName]time.Time // until when a set is left alone
	refused map[types.NamespacedName]bool      // the set with its new sizes
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{
		Options: o, metrics: newInstruments(), records: map[types.NamespacedName]bool{}, told: map[types.NamespacedName]string{},
		holds: map[types.NamespacedName]time.Time{}, refused: map[types.NamespacedName]bool{},
	}
	o.Registry.MustRegister(r.metrics.all()...)
	return r
}

// Add makes the reconciler part of a manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("template").
		For(&appsv1.StatefulSet{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(setOf)).
		Watches(&v1alpha1.StoragePolicy{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.unfinished)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the templates of StatefulSets: %w", err)
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

// all are the sets that have templates.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	var sets appsv1.StatefulSetList
	if err := r.Client.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "List StatefulSets")
		return nil
	}
	var requests []ctrl.Request
	for i := range sets.Items {
		if s := &sets.Items[i]; len(s.Spec.VolumeClaimTemplates) > 0 {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return requests
}

// unfinished has the sets reconciled that an earlier leader did not finish: they
// may not be there, so that nothing else tells of them.
func (r *Reconciler) unfinished(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	if !r.Recreate {
		return nil
	}
	go func() {
		_ = wait.PollUntilContextCancel(ctx, soon, true, func(ctx context.Context) (bool, error) {
			keys, err := r.load(ctx)
			if err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Cannot look up the StatefulSets that are being made anew")
				return false, nil
			}
			for _, key := range keys {
				queue.Add(ctrl.Request{NamespacedName: key})
			}
			return true, nil
		})
	}()
	return nil
}

// load looks up once which sets have a record.
func (r *Reconciler) load(ctx context.Context) ([]types.NamespacedName, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loaded {
		all, err := r.saved(ctx)
		if err != nil {
			return nil, err
		}
		for i := range all {
			namespace, name, _ := strings.Cut(all[i].Annotations[annotationSet], "/")
			r.records[types.NamespacedName{Namespace: namespace, Name: name}] = true
		}
		r.loaded = true
	}
	var keys []types.NamespacedName
	for key := range r.records {
		keys = append(keys, key)
	}
	return keys, nil
}

// saved are the records, without what is in them.
func (r *Reconciler) saved(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.Live.List(ctx, &all, client.InNamespace(r.Namespace), client.MatchingLabels{labelRecord: recordOfSets}); err != nil {
		return nil, fmt.Errorf("list the saved StatefulSets: %w", err)
	}
	return all.Items, nil
}

// Remade answers, by what the API server has now, which sets are being made anew:
// there is a record of them, and they may not be there for a while. An install that
// may not make sets anew has no records, and may not read them either.
func (r *Reconciler) Remade(ctx context.Context) (func(set types.NamespacedName) bool, error) {
	names := map[string]bool{}
	if r.Recreate {
		all, err := r.saved(ctx)
		if err != nil {
			return nil, err
		}
		for i := range all {
			names[all[i].Name] = true
		}
	}
	return func(set types.NamespacedName) bool { return names[nameOf(set)] }, nil
}

// Reconcile keeps the templates of one set in step.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.Recreate {
		if _, err := r.load(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	key := req.NamespacedName
	r.mu.Lock()
	recorded := r.records[key]
	r.mu.Unlock()
	set := &appsv1.StatefulSet{}
	err := r.Client.Get(ctx, key, set, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("look up StatefulSet %s: %w", key, err)
	}
	there := err == nil && set.DeletionTimestamp == nil && !isSystem(key.Namespace)
	if !there {
		r.metrics.differ(key, nil) // where its user deleted it, nothing looks at it again
	}
	if !there && !recorded {
		r.drop(key)
		return ctrl.Result{}, nil
	}
	var recreate []string
	if there {
		if recreate, err = r.look(ctx, set); err != nil {
			return ctrl.Result{}, err
		}
	}
	if !recorded && len(recreate) == 0 {
		return ctrl.Result{}, nil
	}
	if !r.Recreate {
		r.tell(set, corev1.EventTypeWarning, ReasonRecreateBlocked, "the policy's statefulSetTemplate is Recreate, and this install may not make StatefulSets anew: it takes config/components/statefulset-recreate, or statefulSetRecreate.enabled of the chart")
		return ctrl.Result{}, nil
	}
	return r.carry(ctx, key, recreate)
}

// look tells where templates and claims of a set differ, and answers which
// templates are to be made anew.
func (r *Reconciler) look(ctx context.Context, set *appsv1.StatefulSet) ([]string, error) {
	key := client.ObjectKeyFromObject(set)
	var claims corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &claims, client.InNamespace(set.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the claims of namespace %s: %w", set.Namespace, err)
	}
	var recreate, doubts []string
	var reported []Difference
	behind := map[v1alpha1.TemplateAction]int{}
	for _, d := range Compare(set, claims.Items) {
		p, doubt, err := statefulset.Growing(ctx, r.World, set, d.Template)
		if err != nil {
			return nil, err
		}
		action := statefulset.ActionOf(p)
		behind[action]++
		switch {
		case action == v1alpha1.ReportTemplate && d.Unsettled == "":
			reported = append(reported, d)
		case action != v1alpha1.RecreateSet || d.Size.Cmp(d.Asked) <= 0:
		case doubt != "":
			doubts = append(doubts, d.String()+"; the set is not made anew: "+doubt)
		default:
			recreate = append(recreate, d.Template)
		}
	}
	r.metrics.differ(key, behind)
	switch {
	case len(doubts) > 0:
		r.tell(set, corev1.EventTypeWarning, ReasonRecreateBlocked, doubts[0])
	case len(reported) > 0:
		r.tell(set, corev1.EventTypeNormal, ReasonTemplateDiffers, sentence(reported)+": the claim of a new replica is made as the template says, and then grows")
	case len(recreate) == 0:
		r.tell(set, "", "", "")
	}
	return recreate, nil
}

// drop forgets what is remembered of a set that is gone.
func (r *Reconciler) drop(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, key)
	delete(r.holds, key)
	delete(r.refused, key)
}

// carry takes the steps of one set, until there is something to wait for.
func (r *Reconciler) carry(ctx context.Context, key types.NamespacedName, recreate []string) (ctrl.Result, error) {
	var tried *Tried
	var triedOf string // the set's resourceVersion
	for range mostSteps {
		seen, err := r.observe(ctx, key)
		if err != nil {
			return ctrl.Result{}, err
		}
		seen.Recreate = recreate
		if seen.Set != nil && seen.Set.ResourceVersion == triedOf {
			seen.Tried = tried
		}
		step := Decide(seen)
		switch step.Kind {
		case Idle:
			return ctrl.Result{}, nil
		case Wait:
			return r.wait(seen, step), nil
		case Blocked:
			r.tell(seen.Set, corev1.EventTypeWarning, ReasonRecreateBlocked, r.differences(seen)+"; the set is not made anew: "+step.Why)
			return ctrl.Result{}, nil
		case Foreign:
			if err := r.supersede(ctx, seen.Record); err != nil {
				return ctrl.Result{}, r.heed(ctx, step, err)
			}
			r.tell(seen.Set, corev1.EventTypeWarning, ReasonRecreateBlocked, fmt.Sprintf(
				"this StatefulSet was made by somebody else while Holdfast was making the one of its name anew: it is left alone, and the other one is in Secret %s/%s; take from it what is needed and delete the Secret",
				r.Namespace, nameOf(key)))
			return ctrl.Result{}, nil
		case Try:
			if until, is := r.holding(key); is && seen.Record == nil {
				return ctrl.Result{RequeueAfter: until}, nil
			}
			if tried, err = r.try(ctx, seen, step); err != nil {
				return ctrl.Result{}, err
			}
			triedOf = seen.Set.ResourceVersion
			if tried.Refused != "" {
				r.hold(key)
			}
		default:
			done, err := r.take(ctx, seen, step)
			if why := refusal(err); why != "" && step.Kind == Delete { // by somebody who lets its dry run pass
				tried = &Tried{Refused: "its deletion is refused: " + why}
				continue
			}
			if err != nil || done {
				return ctrl.Result{RequeueAfter: r.after(step, err)}, r.heed(ctx, step, err)
			}
		}
	}
	return ctrl.Result{RequeueAfter: soon}, nil
}

// heed makes a conflict of writes no error: it is looked at again. Nor is it one
// that a set was not created: that is tried again soon, and not ever later.
func (r *Reconciler) heed(ctx context.Context, step Step, err error) error {
	if err == nil || apierrors.IsConflict(err) {
		return nil
	}
	if step.Kind == Create {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot make a StatefulSet again yet")
		return nil
	}
	return err
}

func (r *Reconciler) after(step Step, err error) time.Duration {
	if err != nil && (step.Kind == Create || apierrors.IsConflict(err)) {
		return soon
	}
	return 0
}

// wait says when to look again. What the cluster's controllers do takes a moment; a
// set that is saved and has become unstable may be so for long, and its user must
// know: claims that it is to delete with itself are retained meanwhile.
func (r *Reconciler) wait(seen Observed, step Step) ctrl.Result {
	if seen.Record != nil && (seen.Record.Stage != Saved || seen.Set.Status.ObservedGeneration != seen.Set.Generation) {
		return ctrl.Result{RequeueAfter: soon}
	}
	if seen.Set != nil {
		r.tell(seen.Set, corev1.EventTypeNormal, ReasonRecreateWaits, r.differences(seen)+"; the set is made anew when this has settled: "+step.Why)
	}
	return ctrl.Result{RequeueAfter: later}
}

// differences is what differs of the templates that are to be made anew.
func (r *Reconciler) differences(seen Observed) string {
	return sentence(Compare(seen.Set, seen.Claims))
}

func (r *Reconciler) hold(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds[key] = r.Clock.Now().Add(held)
}

// holding says for how long a set is still left alone.
func (r *Reconciler) holding(key types.NamespacedName) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.holds[key].Sub(r.Clock.Now())
	return left, left > 0
}

// observe reads what there is to plan by. The set is read before its Pods: Pods
// that are seen without an owner have lost it by then.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (Observed, error) {
	var seen Observed
	stored := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: nameOf(key)}, stored)
	switch {
	case err == nil:
		if seen.Record, err = readRecord(stored); err != nil {
			return seen, err
		}
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("look up the record of StatefulSet %s: %w", key, err)
	}
	r.mu.Lock()
	seen.Refused = r.refused[key]
	if r.records[key] = seen.Record != nil; seen.Record == nil {
		delete(r.records, key)
	}
	r.mu.Unlock()
	set := &appsv1.StatefulSet{}
	err = r.Live.Get(ctx, key, set)
	switch {
	case err == nil:
		seen.Set = set
	case !apierrors.IsNotFound(err):
		return seen, fmt.Errorf("look up StatefulSet %s: %w", key, err)
	}
	return seen, r.observeAround(ctx, key, &seen)
}

// observeAround reads the claims and Pods of a set, and how its namespace is.
func (r *Reconciler) observeAround(ctx context.Context, key types.NamespacedName, seen *Observed) error {
	of := seen.Set
	if of == nil {
		if seen.Record == nil {
			return nil
		}
		of = seen.Record.Object
		namespace, err := r.World.Namespace(ctx, key.Namespace)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		seen.NamespaceGoing = err != nil || namespace.Terminating
	}
	selector, err := metav1.LabelSelectorAsSelector(of.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read the selector of StatefulSet %s: %w", key, err)
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("list the Pods of StatefulSet %s: %w", key, err)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &claims, client.InNamespace(key.Namespace)); err != nil {
		return fmt.Errorf("list the claims of StatefulSet %s: %w", key, err)
	}
	seen.Pods, seen.Claims = pods.Items, claims.Items
	return nil
}

// isSystem says whether no policy ever applies in a namespace.
func isSystem(name string) bool { return policy.Namespace{Name: name}.IsSystem() }
