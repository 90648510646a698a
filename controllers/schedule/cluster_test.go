//go:build envtest

package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/controllers/hooks"
	"github.com/holdfast-dev/holdfast/internal/slim"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// The driver and class of most claims. Nothing here is EBS's.
const (
	driver = "csi.example.com"
	class  = "example-snapshots"
)

// server is a real API server, shared by the tests. There is no
// snapshot-controller: what it writes, the tests write.
var server struct {
	cfg    *rest.Config
	client client.Client
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func TestSchedules(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	server.cfg = testenv.APIServer(t)
	server.cfg.QPS = -1
	var err error
	if server.client, err = client.New(server.cfg, client.Options{Scheme: scheme()}); err != nil {
		t.Fatal(err)
	}
	create(t, &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: class, Annotations: map[string]string{defaultClassAnnotation: "true"}},
		Driver:     driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	})
	t.Run("killed", testKilled)
	t.Run("two leaders", testTwoLeaders)
	t.Run("caps", testCaps)
	t.Run("quota", testQuota)
	t.Run("stranger", testStranger)
	t.Run("invalid", testInvalid)
	t.Run("going", testGoing)
	t.Run("leaving namespace", testLeaving)
	t.Run("drivers", testDrivers)
	t.Run("ready", testReady)
	t.Run("counts", testCounts)
	t.Run("thrift", testThrift)
	t.Run("hooks", testHooks)
	t.Run("hooks that hang", testHangingHooks)
	t.Run("pods not listed", testPodsNotListed)
	t.Run("no place", testNoPlace)
	t.Run("hooks not enabled", testHooksNotEnabled)
	t.Run("groups", testGroups)
	t.Run("left labels", testLeftLabels)
	t.Run("marks that are refused", testRefusedMarks)
	t.Run("groups with hooks", testHookedGroup)
	t.Run("running", testRunning)
	t.Run("kinds", testKinds) // the last one: it takes the CRDs away
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := server.client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// eventually waits for what an informer or a running manager does.
func eventually(t *testing.T, what string, within time.Duration, do func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not after %v: %v", what, within, err)
}

// namespace makes one with bound claims of a driver, and answers its name.
func namespace(t *testing.T, claims int) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "db-"}}
	create(t, ns)
	for i := range claims {
		boundClaim(t, ns.Name, fmt.Sprintf("data-%d", i), driver)
	}
	return ns.Name
}

// boundClaim makes a claim and the volume that it is bound to.
func boundClaim(t *testing.T, ns, name, driver string) *corev1.PersistentVolumeClaim {
	t.Helper()
	none, volume := "", ns+"-"+name
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &none, VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	create(t, claim)
	claim.Status.Phase = corev1.ClaimBound
	if err := server.client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: ns, Name: name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: volume}},
	}})
	return claim
}

// each is a schedule of one run a minute.
func each(t *testing.T, ns, name string) *v1alpha1.SnapshotSchedule {
	t.Helper()
	s := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "* * * * *"}}
	create(t, s)
	return s
}

// byHand is a schedule that is run once, at once, and not again for long.
func byHand(t *testing.T, ns, token string, change ...func(*v1alpha1.SnapshotScheduleSpec)) *v1alpha1.SnapshotSchedule {
	t.Helper()
	s := &v1alpha1.SnapshotSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "by-hand", Annotations: map[string]string{v1alpha1.AnnotationRunNow: token}},
		Spec:       v1alpha1.SnapshotScheduleSpec{Schedule: "0 0 1 1 *"},
	}
	for _, c := range change {
		c(&s.Spec)
	}
	create(t, s)
	return s
}

// slotOf is the first run of a schedule made with each. It is at most a minute
// away, so that what the API server dates by itself is not far from it.
func slotOf(s *v1alpha1.SnapshotSchedule) time.Time {
	return s.CreationTimestamp.Truncate(time.Minute).Add(time.Minute)
}

// taken are the copies that there are of a schedule, by claim.
func taken(t *testing.T, s *v1alpha1.SnapshotSchedule) map[string]snapshotv1.VolumeSnapshot {
	t.Helper()
	var list snapshotv1.VolumeSnapshotList
	if err := server.client.List(t.Context(), &list, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}); err != nil {
		t.Fatal(err)
	}
	all := map[string]snapshotv1.VolumeSnapshot{}
	for _, o := range list.Items {
		all[*o.Spec.Source.PersistentVolumeClaimName] = o
	}
	if len(all) != len(list.Items) {
		t.Errorf("%d copies of %d claims: some have two", len(list.Items), len(all))
	}
	return all
}

// wire looks at each request of a manager, and can refuse to send it.
type wire struct {
	base   http.RoundTripper
	before func(*http.Request, string) error // method, path and body

	mu     sync.Mutex
	writes []string
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && !strings.Contains(req.URL.Path, "/events") {
		body := ""
		if req.GetBody != nil {
			if r, err := req.GetBody(); err == nil {
				raw, _ := io.ReadAll(r)
				body = string(raw)
			}
		}
		if w.before != nil {
			if err := w.before(req, body); err != nil {
				return nil, err
			}
		}
		w.mu.Lock()
		w.writes = append(w.writes, req.Method+" "+req.URL.Path+" "+body)
		w.mu.Unlock()
	}
	return w.base.RoundTrip(req)
}

// written answers the writes so far that mention all texts.
func (w *wire) written(texts ...string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.writes {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// manager is a manager with its informers and a reconciler.
type manager struct {
	t    *testing.T
	r    *Reconciler
	ctrl ctrl.Manager
	wire *wire
	clk  *clocktesting.FakePassiveClock
	reg  *prometheus.Registry
	stop func()
}

// options of a manager of the tests.
type options struct {
	limits  Limits
	running bool // its controller works by itself, with the real time
	before  func(*http.Request, string) error
	run     func(hooks.Command) error // runs hooks; nil: they are not enabled
}

// start starts a manager. It ends with the test, or when it is stopped.
func start(t *testing.T, o options) *manager {
	t.Helper()
	m := &manager{t: t, wire: &wire{before: o.before}, clk: clocktesting.NewFakePassiveClock(time.Now()), reg: prometheus.NewRegistry()}
	cfg := rest.CopyConfig(server.cfg)
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { m.wire.base = base; return m.wire })
	unnamed := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unnamed},
		Cache: cache.Options{DefaultTransform: snapshots.Slim, ByObject: map[client.Object]cache.ByObject{
			&corev1.PersistentVolume{}: {Transform: SlimVolume}, &corev1.PersistentVolumeClaim{}: {Transform: slim.Claim},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := snapshots.New(t.Context(), mgr, m.reg)
	if err != nil {
		t.Fatal(err)
	}
	if o.limits.Cluster == 0 {
		o.limits = Limits{Cluster: 1000, Class: 1000}
	}
	var clk clock.PassiveClock = m.clk
	if o.running {
		clk = clock.RealClock{}
	}
	var runner *hooks.Runner
	if o.run != nil {
		runner = hooks.NewRunner(hooks.Options{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{}, Namespace: "default", Registry: m.reg,
			Run: func(_ context.Context, c hooks.Command, _ time.Duration) error { return o.run(c) },
		})
		if err := mgr.Add(runner); err != nil {
			t.Fatal(err)
		}
	}
	m.ctrl, m.r = mgr, New(mgr, Options{Kinds: kinds, Hooks: runner, Clock: clk, Limits: o.limits, Registry: m.reg})
	if o.running {
		if err := m.r.Add(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mgr.Start(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("manager: %v", err)
		}
	}()
	m.stop = func() { cancel(); <-ended }
	t.Cleanup(m.stop)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the informers do not sync")
	}
	return m
}

// look reconciles a schedule at a time, once the informers show all there is.
func (m *manager) look(s *v1alpha1.SnapshotSchedule, at time.Time) (ctrl.Result, error) {
	m.t.Helper()
	m.clk.SetTime(at)
	m.level(s.Namespace)
	return m.r.Reconcile(m.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
}

// must is look for what does not fail.
func (m *manager) must(s *v1alpha1.SnapshotSchedule, at time.Time) v1alpha1.SnapshotScheduleStatus {
	m.t.Helper()
	if _, err := m.look(s, at); err != nil {
		m.t.Fatal(err)
	}
	return status(m.t, s)
}

// level waits until the informers show a namespace as it is.
func (m *manager) level(ns string) {
	m.t.Helper()
	for _, kind := range []func() client.ObjectList{
		func() client.ObjectList { return &v1alpha1.SnapshotScheduleList{} },
		func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} },
		func() client.ObjectList { return &snapshotv1.VolumeSnapshotList{} },
	} {
		eventually(m.t, fmt.Sprintf("the informer of %T is level", kind()), 20*time.Second, func() error {
			now, cached := kind(), kind()
			if err := server.client.List(m.t.Context(), now, client.InNamespace(ns)); err != nil {
				return err
			}
			if err := m.ctrl.GetCache().List(m.t.Context(), cached, client.InNamespace(ns)); err != nil {
				return err
			}
			if a, b := versions(now), versions(cached); a != b {
				return errors.New(a + " is not " + b)
			}
			return nil
		})
	}
}

// versions are the names and resource versions of a list.
func versions(list client.ObjectList) string {
	lines := map[string]string{}
	switch l := list.(type) {
	case *v1alpha1.SnapshotScheduleList:
		for _, o := range l.Items {
			lines[o.Name] = o.ResourceVersion
		}
	case *corev1.PersistentVolumeClaimList:
		for _, o := range l.Items {
			lines[o.Name] = o.ResourceVersion
		}
	case *snapshotv1.VolumeSnapshotList:
		for _, o := range l.Items {
			lines[o.Name] = o.ResourceVersion
		}
	}
	return fmt.Sprint(lines) // maps print in the order of their keys
}

// testCounts: a count of 0 is stored, or the columns of kubectl would be empty.
func testCounts(t *testing.T) {
	s := byHand(t, namespace(t, 0), "once")
	start(t, options{}).must(s, s.CreationTimestamp.Add(time.Second))
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SnapshotSchedule"))
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(s), stored); err != nil {
		t.Fatal(err)
	}
	for _, count := range []string{"missedSlots", "claimCount", "readyCount", "pendingCount", "failedCount"} {
		if _, there, err := unstructured.NestedInt64(stored.Object, "status", count); !there || err != nil {
			t.Errorf("status.%s is not stored: %v", count, err)
		}
	}
}

// series counts those of a metric that are about a namespace.
func (m *manager) series(name, ns string) int {
	m.t.Helper()
	families, err := m.reg.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				if f.GetName() == name && l.GetName() == "namespace" && l.GetValue() == ns {
					n++
				}
			}
		}
	}
	return n
}

// status reads a schedule's.
func status(t *testing.T, s *v1alpha1.SnapshotSchedule) v1alpha1.SnapshotScheduleStatus {
	t.Helper()
	now := &v1alpha1.SnapshotSchedule{}
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(s), now); err != nil {
		t.Fatal(err)
	}
	if now.Generation != s.Generation {
		t.Errorf("the spec of %s was changed: generation %d, was %d", s.Name, now.Generation, s.Generation)
	}
	return now.Status
}

// progress writes the status of a copy as the snapshot-controller does.
func progress(t *testing.T, o snapshotv1.VolumeSnapshot, status snapshotv1.VolumeSnapshotStatus) {
	t.Helper()
	o.Status = &status
	if err := server.client.Status().Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
}

// cutAt is the status of a copy that was cut, and is ready or not.
func cutAt(at time.Time, ready bool) snapshotv1.VolumeSnapshotStatus {
	return snapshotv1.VolumeSnapshotStatus{CreationTime: &metav1.Time{Time: at}, ReadyToUse: &ready}
}
