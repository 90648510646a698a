//go:build envtest

package policyschedule

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v6/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// cluster is a real API server that the tests write to.
type cluster struct {
	*testing.T
	client.Client
	cfg *rest.Config
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, snapshotv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// writes are the requests by which a manager changed something.
type writes struct {
	mu  sync.Mutex
	got []string
}

func (w *writes) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

// counting notes the writes of a transport.
type counting struct {
	next http.RoundTripper
	to   *writes
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.to.mu.Lock()
		c.to.got = append(c.to.got, r.Method+" "+r.URL.Path)
		c.to.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// manage runs the reconciler in a manager until stop is called.
func (c *cluster) manage() (w *writes, stop func()) {
	c.Helper()
	w = &writes{}
	cfg := rest.CopyConfig(c.cfg)
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, w} })
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme(c.T), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // one process runs several
	})
	if err != nil {
		c.Fatal(err)
	}
	r := &Reconciler{
		Client: mgr.GetClient(), World: &world.World{Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}},
		Events: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{},
	}
	if err := r.Add(mgr); err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return w, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.Errorf("the manager: %v", err)
		}
	})
}

func (c *cluster) eventually(what string, check func() error) {
	c.Helper()
	var err error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	c.Fatalf("%s: %v", what, err)
}

func (c *cluster) make(objects ...client.Object) {
	c.Helper()
	for _, o := range objects {
		if err := c.Create(c.Context(), o); err != nil {
			c.Fatalf("make %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (c *cluster) namespace(name string, labels map[string]string) {
	c.Helper()
	c.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// schedule is a schedule as the API server has it.
func (c *cluster) schedule(namespace, name string) (*v1alpha1.SnapshotSchedule, error) {
	s := &v1alpha1.SnapshotSchedule{}
	return s, c.Get(c.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s)
}

// follows waits until a schedule is there with this time, and written by the manager.
func (c *cluster) follows(namespace, name, when string) *v1alpha1.SnapshotSchedule {
	c.Helper()
	var s *v1alpha1.SnapshotSchedule
	c.eventually(fmt.Sprintf("%s/%s is at %q", namespace, name, when), func() (err error) {
		if s, err = c.schedule(namespace, name); err != nil {
			return err
		}
		if s.Spec.Schedule != when || s.Spec.Suspend || edited(s) || handedBack(s) || s.DeletionTimestamp != nil {
			return fmt.Errorf("it is %q, suspended %v, generation %d, annotations %v", s.Spec.Schedule, s.Spec.Suspend, s.Generation, s.Annotations)
		}
		return nil
	})
	return s
}

func (c *cluster) gone(namespace, name string) {
	c.Helper()
	c.eventually(namespace+"/"+name+" goes", func() error {
		if s, err := c.schedule(namespace, name); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there: %v, %w", s.Annotations, err)
		}
		return nil
	})
}

// change changes an object, again where somebody else was faster.
func change[T client.Object](c *cluster, o T, to func(T)) {
	c.Helper()
	c.eventually("change "+o.GetName(), func() error {
		if err := c.Get(c.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		to(o)
		return c.Update(c.Context(), o)
	})
}

// condition waits for a condition of a policy, for the policy as it is now.
func (c *cluster) condition(policy, kind, want string) {
	c.Helper()
	c.eventually(kind+" of "+policy, func() error {
		p := &v1alpha1.StoragePolicy{}
		if err := c.Get(c.Context(), client.ObjectKey{Name: policy}, p); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(p.Status.Conditions, kind)
		if cond == nil || cond.ObservedGeneration != p.Generation || !strings.Contains(fmt.Sprintf("%s %s %s", cond.Status, cond.Reason, cond.Message), want) {
			return fmt.Errorf("it is %+v, want %q", cond, want)
		}
		return nil
	})
}

func (c *cluster) event(namespace, name, reason string) {
	c.Helper()
	c.eventually("event "+reason, func() error {
		var list eventsv1.EventList
		if err := c.List(c.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == name && e.Reason == reason }) {
			return fmt.Errorf("none of %d events of namespace %s", len(list.Items), namespace)
		}
		return nil
	})
}

func weekly() *v1alpha1.StoragePolicy {
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "everything"}}
	p.Spec.Match.NamespaceSelector = labelled("copied=yes")
	p.Spec.Snapshots = &v1alpha1.PolicySnapshots{Schedules: []v1alpha1.PolicySchedule{{Name: "weekly", Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "@weekly"}}}}
	return p
}

// TestPoliciesGiveSchedules is the life of schedules at a real API server.
func TestPoliciesGiveSchedules(t *testing.T) {
	cfg := testenv.APIServer(t)
	reader, err := client.New(cfg, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, Client: reader, cfg: cfg}
	db := map[string]string{"tier": "db", "copied": "yes"}
	for _, name := range []string{"a", "b", "edits", "owned"} {
		c.namespace(name, db)
	}
	c.namespace("web", nil)
	c.namespace("dying", nil) // stays Terminating: nothing here finalizes namespaces
	dying := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dying"}}
	if err := c.Delete(t.Context(), dying); err != nil {
		t.Fatal(err)
	}
	change(c, dying, func(n *corev1.Namespace) { n.Labels = db })
	stranger := &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "owned", Name: "databases-daily"}, Spec: v1alpha1.SnapshotScheduleSpec{Schedule: "5 5 * * *"}}
	databases := databases(func(p *v1alpha1.StoragePolicySpec) {
		p.Match.ClaimSelector, p.Match.Provisioners = labelled("app=pg"), []string{"ebs.csi.aws.com"}
	})
	databases.Generation = 0
	everything := weekly()
	c.make(stranger, databases, everything)
	writes, stop := c.manage()
	defer func() { stop() }()

	c.condition("databases", v1alpha1.ConditionSchedulesGiven, "False NoStorageClass")
	c.make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: "ebs.csi.aws.com"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "efs"}, Provisioner: "efs.csi.aws.com"})
	s := c.follows("a", "databases-daily", "0 3 * * *")
	if s.Labels[v1alpha1.LabelPolicy] != "databases" || s.Spec.Retention.KeepLast != 7 || !slices.Equal(s.Spec.Target.StorageClassNames, []string{"gp3"}) || s.Spec.Target.ClaimSelector.MatchLabels["app"] != "pg" {
		t.Errorf("the schedule is %+v", s)
	}
	for _, name := range []string{"a", "b", "edits", "owned"} { // of two policies
		c.follows(name, "everything-weekly", "@weekly")
	}
	c.condition("everything", v1alpha1.ConditionSchedulesGiven, "True InStep")
	c.condition("databases", v1alpha1.ConditionSchedulesGiven, "False NameTaken 1 SnapshotSchedule is (owned/databases-daily)")
	c.make(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "io2"}, Provisioner: "ebs.csi.aws.com"})
	c.eventually("a new class of the provisioner is copied", func() error {
		if s, err = c.schedule("a", "databases-daily"); err != nil || !slices.Equal(s.Spec.Target.StorageClassNames, []string{"gp3", "io2"}) {
			return fmt.Errorf("%v %w", s.Spec.Target.StorageClassNames, err)
		}
		return nil
	})

	// An owner's edit.
	change(c, &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "edits", Name: "databases-daily"}}, func(s *v1alpha1.SnapshotSchedule) { s.Spec.Suspend = true })
	c.condition("databases", v1alpha1.ConditionSchedulesEdited, "True EditedByOwner 1 schedule is (edits/databases-daily)")
	c.event("edits", "databases-daily", v1alpha1.ReasonEdited)
	change(c, databases, func(p *v1alpha1.StoragePolicy) { p.Spec.Snapshots.Schedules[0].Spec.Schedule = "0 4 * * *" })
	c.follows("a", "databases-daily", "0 4 * * *")
	c.follows("b", "databases-daily", "0 4 * * *")
	c.condition("databases", v1alpha1.ConditionSchedulesEdited, "True EditedByOwner 1 schedule is (edits/databases-daily)")
	if s, err = c.schedule("edits", "databases-daily"); err != nil || !s.Spec.Suspend || s.Spec.Schedule != "0 3 * * *" {
		t.Errorf("what an owner edited is %+v, %v", s.Spec, err)
	}
	change(c, s, func(s *v1alpha1.SnapshotSchedule) { s.Annotations[v1alpha1.AnnotationFollowPolicy] = "true" })
	c.follows("edits", "databases-daily", "0 4 * * *")
	c.condition("databases", v1alpha1.ConditionSchedulesEdited, "False NoneEdited")

	// Deletions, and the namesake.
	before := c.follows("b", "databases-daily", "0 4 * * *").UID
	if err := c.Delete(t.Context(), &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "databases-daily"}}); err != nil {
		t.Fatal(err)
	}
	if s = c.follows("b", "databases-daily", "0 4 * * *"); s.UID == before {
		t.Error("a deleted schedule is there with its old UID")
	}
	if s, err = c.schedule("owned", "databases-daily"); err != nil || s.Spec.Schedule != "5 5 * * *" || len(s.Labels)+len(s.Annotations) > 0 {
		t.Errorf("the namesake is %+v, %v", s, err)
	}
	if err := c.Delete(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	c.follows("owned", "databases-daily", "0 4 * * *")
	c.condition("databases", v1alpha1.ConditionSchedulesGiven, "True InStep")

	// Nothing was tried where nothing is to be given, and a restart writes nothing.
	for _, w := range writes.taken() {
		if strings.Contains(w, "/dying/") || strings.Contains(w, "/web/") || strings.Contains(w, "/kube-system/") {
			t.Errorf("the manager wrote there: %s", w)
		}
	}
	stop()
	writes, stop = c.manage()
	c.namespace("marker", db) // with its schedules the manager has been through all that there is
	c.follows("marker", "databases-daily", "0 4 * * *")
	c.follows("marker", "everything-weekly", "@weekly")
	for _, w := range writes.taken() {
		if w != "POST /apis/holdfast.dev/v1alpha1/namespaces/marker/snapshotschedules" {
			t.Errorf("a restart wrote: %s", w)
		}
	}

	c.withdrawn(databases)
}

// withdrawn is the end of schedules: snapshots and what owners edited stay.
func (c *cluster) withdrawn(databases *v1alpha1.StoragePolicy) {
	c.Helper()
	source := "data"
	snapshot := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "copy", Labels: map[string]string{v1alpha1.LabelSchedule: "databases-daily"}}}
	snapshot.Spec.Source.PersistentVolumeClaimName = &source
	c.make(snapshot)
	change(c, &v1alpha1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "edits", Name: "databases-daily"}}, func(s *v1alpha1.SnapshotSchedule) { s.Spec.Retention.KeepLast = 30 })
	c.condition("databases", v1alpha1.ConditionSchedulesEdited, "True EditedByOwner")
	change(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, func(n *corev1.Namespace) { n.Labels["tier"] = "cache" })
	c.gone("a", "databases-daily")
	c.event("a", "databases-daily", "ScheduleWithdrawn")
	c.follows("a", "everything-weekly", "@weekly")
	if err := c.Delete(c.Context(), databases); err != nil {
		c.Fatal(err)
	}
	c.gone("b", "databases-daily")
	c.gone("owned", "databases-daily")
	if s, err := c.schedule("edits", "databases-daily"); err != nil || s.DeletionTimestamp != nil {
		c.Errorf("what an owner edited goes with the policy: %v", err)
	}
	if err := c.Get(c.Context(), client.ObjectKeyFromObject(snapshot), snapshot); err != nil || snapshot.DeletionTimestamp != nil {
		c.Errorf("a snapshot goes with its schedule: %v", err)
	}
}

// TestManyNamespaces gives a schedule to each of 200 namespaces that come at
// once: one request each, and a condition that does not follow each of them.
func TestManyNamespaces(t *testing.T) {
	const many = 200
	cfg := testenv.APIServer(t)
	cfg.QPS = -1
	reader, err := client.New(cfg, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, Client: reader, cfg: cfg}
	writes, stop := c.manage()
	defer stop()
	c.make(weekly())
	for i := range many {
		c.namespace(fmt.Sprintf("n%03d", i), map[string]string{"copied": "yes"})
	}
	c.eventually("each namespace has its schedule", func() error {
		var list v1alpha1.SnapshotScheduleList
		if err := c.List(t.Context(), &list); err != nil || len(list.Items) != many {
			return fmt.Errorf("%d have one, %w", len(list.Items), err)
		}
		return nil
	})
	c.condition("everything", v1alpha1.ConditionSchedulesGiven, "True InStep")
	got := writes.taken()
	if most := many + 10; len(got) > most {
		t.Errorf("%d writes for %d namespaces, want at most %d", len(got), many, most)
	}
}
