package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/schedule"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// Reconciler lets the copies of schedules age out. One worker calls it: the
// budget is one for all schedules.
type Reconciler struct {
	Client client.Client // reads from informers
	Live   client.Reader
	Marked client.Reader // holds the contents with marks, and no others
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// GroupsServed says whether the cluster has VolumeGroupSnapshots; nil: the API
	// server is asked each time.
	GroupsServed func() bool

	retained *prometheus.GaugeVec
	budget   budget
	refusals map[types.NamespacedName]map[string]refusal
}

// New makes a reconciler and registers its metric.
func New(c client.Client, live, marked client.Reader, recorder events.EventRecorder, clk clock.PassiveClock, registry prometheus.Registerer) *Reconciler {
	r := &Reconciler{
		Client: c, Live: live, Marked: marked, Events: recorder, Clock: clk,
		refusals: map[types.NamespacedName]map[string]refusal{},
		retained: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_snapshot_contents_retained",
			Help: "VolumeSnapshotContents whose copy has aged out and that keep their cloud snapshot (contents FollowClass, deletionPolicy Retain), by the schedule that made the copy.",
		}, []string{"namespace", "schedule"}),
	}
	registry.MustRegister(r.retained)
	return r
}

// Reconcile lets the copies of one schedule age out.
//
//	the schedule has gone              what it left behind is still counted
//	it is being deleted                onScheduleDelete
//	its namespace is being deleted     nothing: its copies go with it
//	its spec cannot be read            nothing is deleted
//	else                               what the plan says
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.SnapshotSchedule{}
	err := r.Client.Get(ctx, req.NamespacedName, s)
	if apierrors.IsNotFound(err) {
		delete(r.refusals, req.NamespacedName)
		_, err := r.count(ctx, req.NamespacedName)
		return ctrl.Result{}, ignoreAbsent(err)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read schedule %s: %w", req, err)
	}
	ends, err := r.ends(ctx, req.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.DeletionTimestamp != nil {
		return r.release(ctx, s, ends)
	}
	if ends {
		return ctrl.Result{}, nil
	}
	if err := r.keepFinalizer(ctx, s, s.Spec.OnScheduleDelete == v1alpha1.DeleteCopies); err != nil {
		return ctrl.Result{}, err
	}
	result, err := r.age(ctx, s)
	return result, ignoreAbsent(err)
}

// ignoreAbsent takes it for done where the cluster has no snapshot kinds: there
// is nothing to age out, and Kinds tells when they come.
func ignoreAbsent(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// ends says whether a namespace is being deleted.
func (r *Reconciler) ends(ctx context.Context, name string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return err != nil || ns.DeletionTimestamp != nil, nil
}

// keepFinalizer puts the finalizer on or takes it off.
func (r *Reconciler) keepFinalizer(ctx context.Context, s *v1alpha1.SnapshotSchedule, wanted bool) error {
	before := s.DeepCopy()
	change := controllerutil.RemoveFinalizer
	if wanted {
		change = controllerutil.AddFinalizer
	}
	if !change(s, v1alpha1.FinalizerSnapshots) {
		return nil
	}
	if err := r.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the finalizer of schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// zone is the schedule's; nil: its spec cannot be acted on, and nothing may be
// deleted.
func zone(s *v1alpha1.SnapshotSchedule) *time.Location {
	if _, errs := schedule.Compile(&s.Spec); len(errs) > 0 {
		return nil
	}
	z, err := time.LoadLocation(cmp.Or(s.Spec.TimeZone, "UTC"))
	if err != nil {
		return nil
	}
	return z
}

// age does what the plan says.
func (r *Reconciler) age(ctx context.Context, s *v1alpha1.SnapshotSchedule) (ctrl.Result, error) {
	now, clock := r.Clock.Now(), zone(s)
	if clock == nil {
		return ctrl.Result{}, nil
	}
	seen, err := r.look(ctx, s, now, clock)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := Decide(now, seen.Observed)
	out, applyErr := r.expire(ctx, s, now, plan.Delete)
	retained, err := r.count(ctx, client.ObjectKeyFromObject(s))
	if err != nil {
		return ctrl.Result{}, errors.Join(applyErr, err)
	}
	err = r.save(ctx, s, overdueCondition(Overdue(now, seen.Observed, plan), out.refused), retainedCondition(s, retained))
	if err := errors.Join(applyErr, err); err != nil {
		return ctrl.Result{}, err
	}
	if !plan.NextLook.IsZero() {
		out.later(max(plan.NextLook.Sub(now), time.Second))
	}
	return ctrl.Result{RequeueAfter: out.again}, nil
}

// expire deletes what the plan by the informers wants gone, and a plan by the
// API server as well. There is no second look where nothing may be deleted now.
func (r *Reconciler) expire(ctx context.Context, s *v1alpha1.SnapshotSchedule, now time.Time, goes []Verdict) (outcome, error) {
	if ready, out := r.pending(s, now, batches(goes)); len(ready) == 0 {
		return out, nil
	}
	live := &v1alpha1.SnapshotSchedule{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), live)
	if client.IgnoreNotFound(err) != nil {
		return outcome{}, fmt.Errorf("read schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	clock := zone(live)
	if err != nil || live.UID != s.UID || live.DeletionTimestamp != nil || clock == nil {
		return outcome{}, nil // the informers will tell
	}
	seen, err := r.lookLive(ctx, live, now, clock)
	if err != nil {
		return outcome{}, err
	}
	return r.deleteAll(ctx, live, now, seen, Decide(now, seen.Observed).Delete)
}

// release deletes the copies of a schedule that is being deleted, where it says
// so, and lets it go.
//
//	onScheduleDelete Retain                    let go: its copies stay
//	its namespace is being deleted             let go: its copies go with it
//	the cluster has no snapshot kinds          let go: there are no copies
//	copies are left, or one is in use          it stays until they have gone
//	none is left but what is held              let go, and said
func (r *Reconciler) release(ctx context.Context, s *v1alpha1.SnapshotSchedule, ends bool) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s, v1alpha1.FinalizerSnapshots) {
		return ctrl.Result{}, nil
	}
	if ends || s.Spec.OnScheduleDelete != v1alpha1.DeleteCopies {
		return ctrl.Result{}, r.keepFinalizer(ctx, s, false)
	}
	now := r.Clock.Now()
	seen, err := r.lookLive(ctx, s, now, time.UTC)
	if meta.IsNoMatchError(err) {
		return ctrl.Result{}, r.keepFinalizer(ctx, s, false)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	plan, waits := Release(seen.Observed)
	out, err := r.deleteAll(ctx, s, now, seen, plan.Delete)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(plan.Delete) == 0 && !waits {
		if n := len(plan.Keep); n > 0 {
			r.Events.Eventf(s, seen.object(plan.Keep[0].Member), corev1.EventTypeWarning, "CopiesKept", "Delete",
				"%d copies stay behind and age out no more, though onScheduleDelete is Delete, such as VolumeSnapshot %s: %s", n, plan.Keep[0].Name, cut(plan.Keep[0].Why, maxWhy))
		}
		return ctrl.Result{}, r.keepFinalizer(ctx, s, false)
	}
	if out.again == 0 {
		out.later(lookAgainAfter) // all is on its way, or in use
	}
	if err := r.save(ctx, s, overdueCondition(plan.Keep, out.refused)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: out.again}, nil
}

// count counts the contents of a schedule that are left behind, also of one that
// has gone.
func (r *Reconciler) count(ctx context.Context, s types.NamespacedName) (int, error) {
	made, err := snapshots.OfSchedule(ctx, r.Client, s.Namespace, s.Name)
	if err != nil {
		return 0, err
	}
	there := map[types.UID]bool{}
	for i := range made {
		there[made[i].UID] = true
	}
	var marked snapshotv1.VolumeSnapshotContentList
	label := copies.LabelValue(s.Name)
	if err := r.Marked.List(ctx, &marked, client.MatchingLabels{v1alpha1.LabelSchedule: label, v1alpha1.LabelContents: string(v1alpha1.FollowClass)}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list the contents that schedule %s left behind: %w", s, err)
	}
	n := 0
	for i := range marked.Items {
		ref := marked.Items[i].Spec.VolumeSnapshotRef
		if ref.Namespace == s.Namespace && !there[ref.UID] {
			n++
		}
	}
	if n == 0 {
		r.retained.DeleteLabelValues(s.Namespace, label)
	} else {
		r.retained.WithLabelValues(s.Namespace, label).Set(float64(n))
	}
	return n, nil
}
