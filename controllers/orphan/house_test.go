//go:build envtest

package orphan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme} {
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
	// breaks says which requests the API server fails to serve; nil: none.
	breaks func(*http.Request) bool
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
	if w.breaks != nil && w.breaks(req) {
		return broken(req), nil
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

// broken is the answer of an API server that fails, or whose webhook does not
// answer.
func broken(req *http.Request) *http.Response {
	status := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"failed calling webhook: no answer"}`
	return &http.Response{
		StatusCode: http.StatusInternalServerError, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)),
	}
}

// indexed asks the API server what the manager asks its informers' indexes. Of
// claims it shows those of one namespace: other tests leave theirs behind. Where
// blind, it does not answer about Pods.
type indexed struct {
	client.Client
	ns    string
	blind *bool
}

func (c indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	asked := o.FieldSelector
	if _, pods := list.(*corev1.PodList); pods && *c.blind {
		return errors.New("no answer")
	}
	if _, claims := list.(*corev1.PersistentVolumeClaimList); claims {
		return c.Client.List(ctx, list, append(opts, client.InNamespace(c.ns))...)
	}
	if asked == nil {
		return c.Client.List(ctx, list, opts...)
	}
	claim, is := asked.RequiresExactMatch(snapshots.ByClaim)
	snaps, too := list.(*snapshotv1.VolumeSnapshotList)
	if !is || !too {
		return fmt.Errorf("no index for %s", asked)
	}
	o.FieldSelector, o.UnsafeDisableDeepCopy = nil, nil
	if err := c.Client.List(ctx, snaps, &o); err != nil {
		return err
	}
	snaps.Items = slices.DeleteFunc(snaps.Items, func(s snapshotv1.VolumeSnapshot) bool {
		return ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "") != claim
	})
	return nil
}

// late lets something happen before the first live read.
type late struct {
	client.Client
	happens func()
}

func (l *late) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if happens := l.happens; happens != nil {
		l.happens = nil
		happens()
	}
	return l.Client.Get(ctx, key, o, opts...)
}

// knows is a cluster with all kinds.
type knows struct{}

func (knows) Served(snapshots.Family) bool                                                { return true }
func (knows) IndexField(context.Context, client.Object, string, client.IndexerFunc) error { return nil }

// house is a namespace with a policy about it, and who sweeps it.
type house struct {
	t      *testing.T
	cfg    *rest.Config
	c      client.Client // the test's own line
	ns     string
	policy string
	clock  *clocktesting.FakeClock
	wire   *wire
	live   *late
	blind  bool   // informers do not tell of Pods
	remade string // the set that is being made anew
	s      *Sweeper
	events *events.FakeRecorder
}

// after is the policy's afterSeconds.
const after = time.Hour

// move makes a house with a set "pg" of some replicas and claims data-pg-0 to -2,
// all stamped, bound, and of a driver with a snapshot class.
func move(t *testing.T, cfg *rest.Config, action v1alpha1.OrphanAction, replicas int32) *house {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: testScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, cfg: cfg, c: c, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second))}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}}
	h.create(ns)
	h.ns, h.policy = ns.Name, ns.Name
	h.create(&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: h.policy}, Spec: v1alpha1.StoragePolicySpec{
		Match:   v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": h.ns}}},
		Orphans: &v1alpha1.PolicyOrphans{AfterSeconds: int32(after / time.Second), Action: action},
	}})
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: h.policy}}); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	h.create(&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: h.ns}, Driver: h.ns + ".example.com", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete})
	h.mark(h.ns, true)
	uid := h.set("pg", replicas)
	for i := range 3 {
		h.claim("pg", uid, i)
	}
	h.restart()
	return h
}

// mark marks the snapshot class as default, or takes that away.
func (h *house) mark(class string, is bool) {
	h.t.Helper()
	o := &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: class}}
	h.change(o, func() {
		o.Annotations = map[string]string{"snapshot.storage.kubernetes.io/is-default-class": fmt.Sprint(is)}
	})
}

// set makes a StatefulSet with the template data, and answers its UID.
func (h *house) set(name string, replicas int32) string {
	h.t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "pg", Image: "pg"}}}},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}},
	}}
	h.create(set)
	return string(set.UID)
}

// claim makes a stamped claim of a set, bound to a volume.
func (h *house) claim(set, uid string, ordinal int) *corev1.PersistentVolumeClaim {
	h.t.Helper()
	name := fmt.Sprintf("data-%s-%d", set, ordinal)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: h.ns + "-" + name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: h.ns + ".example.com", VolumeHandle: name}},
	}}
	h.create(pv)
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name, Labels: map[string]string{"app": set}, Annotations: map[string]string{
			v1alpha1.AnnotationSetUID: uid, v1alpha1.AnnotationSetName: set, v1alpha1.AnnotationSetTemplate: "data", v1alpha1.AnnotationSetOrdinal: fmt.Sprint(ordinal),
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: pv.Name, StorageClassName: ptr.To(""),
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	h.create(c)
	c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, size
	if err := h.c.Status().Update(h.t.Context(), c); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// restart puts another manager in charge.
func (h *house) restart() {
	h.t.Helper()
	h.wire = &wire{}
	h.wire.lives.Store(-1)
	h.s, h.live, h.events = h.sweeper(h.wire)
}

func (h *house) sweeper(w *wire) (*Sweeper, *late, *events.FakeRecorder) {
	h.t.Helper()
	cfg := rest.CopyConfig(h.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { w.next = next; return w })
	direct, err := client.New(cfg, client.Options{Scheme: testScheme(h.t), Mapper: h.c.RESTMapper()})
	if err != nil {
		h.t.Fatal(err)
	}
	live, told := &late{Client: indexed{direct, h.ns, &h.blind}}, events.NewFakeRecorder(1000)
	return New(Options{
		Client: direct, Kinds: knows{}, Remade: h.isRemade, Events: told, Clock: h.clock, Registry: prometheus.NewRegistry(),
		World: &world.World{Cache: indexed{direct, h.ns, &h.blind}, Live: live, Index: snapshots.NewIndex(knows{}), Clock: h.clock},
	}), live, told
}

func (h *house) isRemade(context.Context) (func(types.NamespacedName) bool, error) {
	now := types.NamespacedName{Namespace: h.ns, Name: h.remade}
	return func(set types.NamespacedName) bool { return set == now }, nil
}

func (h *house) create(o client.Object) {
	h.t.Helper()
	if err := h.c.Create(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) change(o client.Object, change func()) {
	h.t.Helper()
	if err := h.c.Get(h.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		h.t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change()
	if err := h.c.Patch(h.t.Context(), o, client.MergeFrom(before)); err != nil {
		h.t.Fatal(err)
	}
}

// get is a set.
func (h *house) get(name string) *appsv1.StatefulSet {
	h.t.Helper()
	set := &appsv1.StatefulSet{}
	if err := h.c.Get(h.t.Context(), client.ObjectKey{Namespace: h.ns, Name: name}, set); err != nil {
		h.t.Fatal(err)
	}
	return set
}

// scale sets the replicas of a set.
func (h *house) scale(name string, replicas int32) {
	h.t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}}
	h.change(set, func() { set.Spec.Replicas = &replicas })
}

// rules changes the policy.
func (h *house) rules(change func(*v1alpha1.StoragePolicySpec)) {
	h.t.Helper()
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: h.policy}}
	h.change(p, func() { change(&p.Spec) })
}

// pod makes a Pod that names a claim.
func (h *house) pod(name, claim string) *corev1.Pod {
	h.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "c"}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}},
	}}
	h.create(p)
	return p
}

// attach makes an attachment of a claim's volume.
func (h *house) attach(claim string) *storagev1.VolumeAttachment {
	h.t.Helper()
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: h.ns + "-" + claim}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: h.ns + ".example.com", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(h.ns + "-" + claim)},
	}}
	h.create(a)
	return a
}

func (h *house) sweep() {
	h.t.Helper()
	if err := h.s.Sweep(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// snapshots are those of the namespace, oldest first.
func (h *house) snapshots() []snapshotv1.VolumeSnapshot {
	h.t.Helper()
	var list snapshotv1.VolumeSnapshotList
	if err := h.c.List(h.t.Context(), &list, client.InNamespace(h.ns)); err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

// ready makes all snapshots ready that are not, as cut now.
func (h *house) ready() {
	h.t.Helper()
	for _, s := range h.snapshots() {
		if s.Status != nil && ptr.Deref(s.Status.ReadyToUse, false) {
			continue
		}
		s.Status = &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: &metav1.Time{Time: h.clock.Now()}}
		if err := h.c.Status().Update(h.t.Context(), &s); err != nil {
			h.t.Fatal(err)
		}
	}
}

// state is a claim in a word: here, marked or going.
func (h *house) state(claim string) string {
	h.t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	err := h.c.Get(h.t.Context(), client.ObjectKey{Namespace: h.ns, Name: claim}, c)
	switch {
	case client.IgnoreNotFound(err) != nil:
		h.t.Fatal(err)
	case err != nil, c.DeletionTimestamp != nil: // nobody takes the finalizer off here
		return "going"
	case c.Annotations[v1alpha1.AnnotationOrphanedSince] != "":
		return "marked"
	}
	return "here"
}

// want compares the states of data-pg-0, -1 and -2, and how many snapshots there are.
func (h *house) want(why string, snaps int, states ...string) {
	h.t.Helper()
	var got []string
	for i := range states {
		got = append(got, h.state(fmt.Sprint("data-pg-", i)))
	}
	if n := len(h.snapshots()); n != snaps || !slices.Equal(got, states) {
		h.t.Fatalf("%s: claims are %v with %d snapshots, want %v with %d", why, got, n, states, snaps)
	}
}

// told are the events since the last time.
func (h *house) told() string {
	var all []string
	for {
		select {
		case e := <-h.events.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}
