//go:build envtest

package retention

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/copies"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
)

// The finalizers of the snapshot-controller and the snapshotter.
const (
	boundFinalizer   = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	contentFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// wire is the manager's line to the API server. It counts writes, and after so
// many of them it is dead, as the manager is when it is killed.
type wire struct {
	next   http.RoundTripper
	writes atomic.Int32
	// lives is how many writes get through; negative: all. Where answered, the
	// last of them is answered still.
	lives    atomic.Int32
	answered atomic.Bool
}

var errDead = errors.New("the manager is dead")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	lives := w.lives.Load()
	if lives >= 0 && w.writes.Load() > lives || lives == 0 {
		return nil, errDead
	}
	if req.Method == http.MethodGet {
		return w.next.RoundTrip(req)
	}
	n := w.writes.Add(1)
	if lives >= 0 && n > lives {
		return nil, errDead
	}
	resp, err := w.next.RoundTrip(req)
	if lives >= 0 && n == lives && !w.answered.Load() {
		if err == nil {
			_ = resp.Body.Close()
		}
		w.writes.Add(1) // dead from now on
		return nil, errDead
	}
	return resp, err
}

// indexed asks the API server what the manager asks its informers' indexes.
type indexed struct{ client.Client }

func (c indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	asked := o.FieldSelector
	if asked == nil {
		return c.Client.List(ctx, list, opts...)
	}
	o.FieldSelector, o.UnsafeDisableDeepCopy = nil, nil
	if value, is := asked.RequiresExactMatch(snapshots.BySchedule); is {
		o.ApplyOptions([]client.ListOption{client.MatchingLabels{v1alpha1.LabelSchedule: value}})
		return c.Client.List(ctx, list, &o)
	}
	namespace, is := asked.RequiresExactMatch(foreignSource)
	claims, too := list.(*corev1.PersistentVolumeClaimList)
	if !is || !too {
		return fmt.Errorf("no index for %s", asked)
	}
	if err := c.Client.List(ctx, claims, &o); err != nil {
		return err
	}
	claims.Items = slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !slices.Contains(namespaceOfSource(&c), namespace) })
	return nil
}

// house is a namespace with a schedule "hourly", and who looks after it.
type house struct {
	t      *testing.T
	cfg    *rest.Config
	c      client.Client // the test's own line
	ns     string
	clock  *clocktesting.FakeClock
	wire   *wire
	r      *Reconciler
	finish *finisher
	events *events.FakeRecorder
}

// move makes a house.
func move(t *testing.T, cfg *rest.Config, spec v1alpha1.SnapshotScheduleSpec) *house {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, cfg: cfg, c: c, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second))}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}}
	h.create(ns)
	h.ns = ns.Name
	h.schedule("hourly", spec)
	h.restart()
	return h
}

// restart puts another manager in charge.
func (h *house) restart() {
	h.t.Helper()
	h.wire = &wire{}
	h.wire.lives.Store(-1)
	cfg := rest.CopyConfig(h.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { h.wire.next = next; return h.wire })
	direct, err := client.New(cfg, client.Options{Scheme: testScheme(h.t), Mapper: h.c.RESTMapper()})
	if err != nil {
		h.t.Fatal(err)
	}
	line := indexed{direct}
	h.events = events.NewFakeRecorder(1000)
	h.r = New(line, direct, direct, h.events, h.clock, prometheus.NewRegistry())
	h.finish = &finisher{kind: single, client: direct, marked: direct, live: direct, clock: h.clock}
}

func (h *house) create(o client.Object) {
	h.t.Helper()
	if err := h.c.Create(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) schedule(name string, spec v1alpha1.SnapshotScheduleSpec) {
	h.t.Helper()
	spec.Schedule = "0 * * * *"
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}, Spec: spec}
	h.create(s)
	h.degraded(name, metav1.ConditionFalse)
}

// degraded is the schedule controller's word.
func (h *house) degraded(name string, is metav1.ConditionStatus) {
	h.t.Helper()
	s := h.get(name)
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: is, Reason: v1alpha1.ReasonAllCopied, Message: "test"})
	if err := h.c.Status().Update(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) get(name string) *v1alpha1.SnapshotSchedule {
	h.t.Helper()
	s := &v1alpha1.SnapshotSchedule{}
	if err := h.c.Get(h.t.Context(), client.ObjectKey{Namespace: h.ns, Name: name}, s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *house) change(o client.Object, change func()) {
	h.t.Helper()
	if err := h.c.Get(h.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		h.t.Fatal(err)
	}
	change()
	if err := h.c.Update(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

// claim makes a claim, of a snapshot where one is named.
func (h *house) claim(name, from string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	h.t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	if from != "" {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: from}
	}
	h.create(c)
	h.phase(c, phase)
	return c
}

func (h *house) phase(c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) {
	h.t.Helper()
	c.Status.Phase = phase
	if err := h.c.Status().Update(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
}

// copyOf makes a copy that was cut some time ago; ready or not.
func (h *house) copyOf(claim *corev1.PersistentVolumeClaim, name string, age time.Duration, ready bool, change ...func(*snapshotv1.VolumeSnapshot)) *snapshotv1.VolumeSnapshot {
	h.t.Helper()
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: h.ns, Name: name,
		Labels: map[string]string{v1alpha1.LabelSchedule: "hourly", v1alpha1.LabelClaimUID: string(claim.UID), v1alpha1.LabelSlot: copies.SlotOf(h.clock.Now().Add(-age))},
	}, Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim.Name}}}
	for _, c := range change {
		c(s)
	}
	status := s.Status
	h.create(s)
	if status == nil {
		status = &snapshotv1.VolumeSnapshotStatus{}
	}
	s.Status = status
	if ready {
		s.Status.ReadyToUse, s.Status.CreationTime = ptr.To(true), &metav1.Time{Time: h.clock.Now().Add(-age)}
	}
	if err := h.c.Status().Update(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// retained gives a snapshot a content, as the snapshot-controller does.
func (h *house) content(s *snapshotv1.VolumeSnapshot, policy snapshotv1.DeletionPolicy) *snapshotv1.VolumeSnapshotContent {
	h.t.Helper()
	c := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + string(s.UID), Finalizers: []string{contentFinalizer}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: "ebs.csi.aws.com", DeletionPolicy: policy, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: ptr.To("vol-1")},
			VolumeSnapshotRef: corev1.ObjectReference{Kind: "VolumeSnapshot", Namespace: s.Namespace, Name: s.Name, UID: s.UID},
		},
	}
	h.create(c)
	h.change(s, func() { s.Finalizers = append(s.Finalizers, boundFinalizer) })
	s.Status.BoundVolumeSnapshotContentName = &c.Name
	if err := h.c.Status().Update(h.t.Context(), s); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// snapshotController does what snapshot-controller and snapshotter do to what is
// being deleted, and answers the contents whose cloud snapshot it deleted
// (external-snapshotter v8.7.0: checkandRemoveSnapshotFinalizersAndCheckandDeleteContent, shouldDelete).
func (h *house) snapshotController() []string {
	h.t.Helper()
	var all snapshotv1.VolumeSnapshotList
	var contents snapshotv1.VolumeSnapshotContentList
	if err := errors.Join(h.c.List(h.t.Context(), &all, client.InNamespace(h.ns)), h.c.List(h.t.Context(), &contents)); err != nil {
		h.t.Fatal(err)
	}
	ofUID := map[types.UID]*snapshotv1.VolumeSnapshotContent{}
	for i := range contents.Items {
		if contents.Items[i].Spec.VolumeSnapshotRef.Namespace == h.ns {
			ofUID[contents.Items[i].Spec.VolumeSnapshotRef.UID] = &contents.Items[i]
		}
	}
	for i := range all.Items {
		s := &all.Items[i]
		if s.DeletionTimestamp == nil || !slices.Contains(s.Finalizers, boundFinalizer) {
			continue
		}
		if c := ofUID[s.UID]; c != nil {
			h.change(c, func() { c.Annotations = with(c.Annotations, map[string]string{single.beingDeleted: "yes"}) })
			if c.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
				if err := client.IgnoreNotFound(h.c.Delete(h.t.Context(), c)); err != nil {
					h.t.Fatal(err)
				}
			}
		}
		h.change(s, func() { s.Finalizers = nil })
	}
	var gone []string
	for _, c := range ofUID {
		if err := h.c.Get(h.t.Context(), client.ObjectKeyFromObject(c), c); err != nil || c.DeletionTimestamp == nil || c.Annotations[single.beingDeleted] == "" {
			continue
		}
		if c.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
			gone = append(gone, c.Name)
		}
		h.change(c, func() { c.Finalizers = nil })
	}
	return gone
}

// look reconciles a schedule once.
func (h *house) look(name string) (ctrl.Result, error) {
	h.t.Helper()
	return h.r.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: h.ns, Name: name}})
}

// must reconciles the schedule hourly, and its contents.
func (h *house) must() ctrl.Result {
	h.t.Helper()
	result, err := h.look("hourly")
	if err = errors.Join(err, h.finishAll()); err != nil {
		h.t.Fatal(err)
	}
	return result
}

// finishAll reconciles each content of the namespace.
func (h *house) finishAll() error {
	h.t.Helper()
	var contents snapshotv1.VolumeSnapshotContentList
	if err := h.c.List(h.t.Context(), &contents); err != nil {
		h.t.Fatal(err)
	}
	var failed []error
	for i := range contents.Items {
		if contents.Items[i].Spec.VolumeSnapshotRef.Namespace == h.ns {
			_, err := h.finish.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: contents.Items[i].Name}})
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// there are the snapshots that are left, by name.
func (h *house) there() string {
	h.t.Helper()
	var all snapshotv1.VolumeSnapshotList
	if err := h.c.List(h.t.Context(), &all, client.InNamespace(h.ns)); err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, s := range all.Items {
		if s.DeletionTimestamp == nil {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (h *house) want(why, there string) {
	h.t.Helper()
	if got := h.there(); got != there {
		h.t.Errorf("%s: there are %q, want %q", why, got, there)
	}
}

// condition wants one of a schedule's, and a text in its message.
func (h *house) condition(name, kind string, is metav1.ConditionStatus, reason, says string) {
	h.t.Helper()
	c := meta.FindStatusCondition(h.get(name).Status.Conditions, kind)
	if c == nil || c.Status != is || c.Reason != reason || !strings.Contains(c.Message, says) {
		h.t.Errorf("condition %s is %+v, want %s for %s, and to read %q in it", kind, c, is, reason, says)
	}
}

// told are the events so far.
func (h *house) told() string {
	var all []string
	for len(h.events.Events) > 0 {
		all = append(all, <-h.events.Events)
	}
	return strings.Join(all, "\n")
}

// last keeps the newest n.
func last(n int32) v1alpha1.SnapshotScheduleSpec {
	return v1alpha1.SnapshotScheduleSpec{Retention: v1alpha1.SnapshotRetention{KeepLast: n}}
}
