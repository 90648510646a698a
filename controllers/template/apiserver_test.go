//go:build envtest

package template

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// cluster is a real API server. Its StatefulSet controller, its garbage collector
// and the manager's stamps are played by the test, as far as making a set anew
// meets them: test/e2e/templates has the real ones.
type cluster struct {
	*testing.T
	client.Client
	watching client.WithWatch
}

func newCluster(t *testing.T) *cluster {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(testenv.APIServer(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	all := &cluster{t, c, c}
	all.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-system"}},
		&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "databases"}, Spec: v1alpha1.StoragePolicySpec{
			Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"template": "recreate"}}},
			Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("1Ti"), StatefulSetTemplate: v1alpha1.RecreateSet},
		}},
		&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "reports"}, Spec: v1alpha1.StoragePolicySpec{
			Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"template": "report"}}},
			Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("1Ti"), StatefulSetTemplate: v1alpha1.ReportTemplate},
		}},
		&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "doubted"}, Spec: v1alpha1.StoragePolicySpec{
			Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"template": "doubt"}}},
			Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("1Ti"), StatefulSetTemplate: v1alpha1.RecreateSet},
		}},
		&v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: "unreadable"}, Spec: v1alpha1.StoragePolicySpec{
			Priority: 1,
			Match: v1alpha1.PolicyMatch{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"template": "doubt"}},
				ClaimSelector:     &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}},
			},
			Expansion: &v1alpha1.PolicyExpansion{MaxSize: resource.MustParse("1Ti"), StatefulSetTemplate: v1alpha1.ReportTemplate},
		}})
	return all
}

func (c *cluster) make(objects ...client.Object) {
	c.Helper()
	for _, o := range objects {
		if err := c.Create(c.Context(), o); err != nil {
			c.Fatalf("make %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// house is one set in a namespace of its own.
type house struct {
	*cluster
	namespace string
	claims    map[string]types.UID
	pods      map[string]types.UID
}

// build makes a namespace with a set of three Pods, whose claims have grown from
// 1Gi to 2Gi, and which deletes them with itself.
func (c *cluster) build(namespace, template string, change func(*appsv1.StatefulSet)) *house {
	c.Helper()
	c.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"template": template}}})
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pg", Annotations: map[string]string{"team": "a"}}}
	set.Spec = appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](3), ServiceName: "pg",
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pg"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "pg"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "pg:1"}}},
		},
		VolumeClaimTemplates:                 []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Retain"},
	}
	spec := corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	set.Spec.VolumeClaimTemplates[0].Spec = spec
	if change != nil {
		change(set)
	}
	c.must(c.Create(c.Context(), set, client.FieldOwner("its-user")))
	h := &house{cluster: c, namespace: namespace, claims: map[string]types.UID{}, pods: map[string]types.UID{}}
	grown := *spec.DeepCopy()
	grown.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	for i := range 3 {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("data-pg-%d", i), Labels: map[string]string{"app": "pg"}}, Spec: grown}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("pg-%d", i), Labels: map[string]string{"app": "pg", appsv1.ControllerRevisionHashLabelKey: "pg-1"},
		}, Spec: set.Spec.Template.Spec}
		c.make(claim, pod)
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, grown.Resources.Requests
		c.must(c.Status().Update(c.Context(), claim))
		h.claims[claim.Name], h.pods[pod.Name] = claim.UID, pod.UID
	}
	h.controllers()
	return h
}

// set is the set as the API server has it; nil: there is none.
func (h *house) set() *appsv1.StatefulSet {
	h.Helper()
	set := &appsv1.StatefulSet{}
	err := h.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: "pg"}, set)
	h.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return set
}

// controllers do once what the StatefulSet controller, the garbage collector and
// the stamps do.
func (h *house) controllers() {
	h.Helper()
	set := h.set()
	if set == nil {
		return
	}
	going := set.DeletionTimestamp != nil
	owner := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	owner.BlockOwnerDeletion = nil
	own := func(o client.Object, wanted bool) bool {
		has := slices.ContainsFunc(o.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == set.UID })
		switch {
		case has && (going || !wanted):
			o.SetOwnerReferences(nil)
		case !has && wanted && !going && len(o.GetOwnerReferences()) == 0:
			o.SetOwnerReferences([]metav1.OwnerReference{owner})
		default:
			return false
		}
		return true
	}
	for name := range h.pods {
		pod := &corev1.Pod{}
		h.must(h.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, pod))
		if own(pod, true) {
			h.must(h.Update(h.Context(), pod))
		}
	}
	for name := range h.claims {
		claim := &corev1.PersistentVolumeClaim{}
		h.must(h.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, claim))
		changed := own(claim, whenDeleted(set) == "Delete")
		if !going && claim.Annotations[v1alpha1.AnnotationSetUID] != string(set.UID) {
			changed = true
			claim.Annotations = map[string]string{v1alpha1.AnnotationSetUID: string(set.UID), v1alpha1.AnnotationSetName: "pg", v1alpha1.AnnotationSetTemplate: "data"}
		}
		if changed {
			h.must(h.Update(h.Context(), claim))
		}
	}
	if going {
		set.Finalizers = slices.DeleteFunc(set.Finalizers, func(f string) bool { return f == metav1.FinalizerOrphanDependents })
		h.must(client.IgnoreNotFound(h.Update(h.Context(), set)))
		return
	}
	want := appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 3, ReadyReplicas: 3, AvailableReplicas: 3, UpdatedReplicas: 3, CurrentRevision: "pg-1", UpdateRevision: "pg-1"}
	if set.Status.ObservedGeneration != want.ObservedGeneration {
		set.Status = want
		h.must(h.Status().Update(h.Context(), set, client.FieldOwner("kube-controller-manager")))
	}
}

var errDead = errors.New("the manager is dead")

// leader is a manager that dies at its n-th write (0: never), before the write
// reaches the API server or right after.
type leader struct {
	*Reconciler
	events *events.FakeRecorder
	writes int
	dies   int
	after  bool
	dead   bool
}

// lead starts one. What it remembers is its own.
func (h *house) lead(recreate bool, dies int, after bool) *leader {
	l := &leader{events: events.NewFakeRecorder(100), dies: dies, after: after}
	do := func(dry bool, write func() error) error {
		switch {
		case l.dead:
			return errDead
		case dry:
			return write()
		}
		l.writes++
		if l.writes != l.dies {
			return write()
		}
		l.dead = true
		if l.after {
			if err := write(); err != nil {
				return err
			}
		}
		return errDead
	}
	guarded := interceptor.NewClient(h.watching, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return do(true, func() error { return c.Get(ctx, key, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return do(len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return do(false, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return do(len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) > 0, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return do(len((&client.DeleteOptions{}).ApplyOptions(opts).DryRun) > 0, func() error { return c.Delete(ctx, o, opts...) })
		},
	})
	l.Reconciler = New(Options{
		Client: guarded, Live: guarded, World: &world.World{Cache: h.Client, Live: h.Client, Clock: clock.RealClock{}}, Events: l.events, Clock: clock.RealClock{},
		Namespace: "holdfast-system", Recreate: recreate, Registry: prometheus.NewRegistry(),
	})
	return l
}

// pass has a leader look at the set so often, with the cluster's controllers in
// between; it answers whether the leader died.
func (h *house) pass(l *leader, times int) (died bool) {
	h.Helper()
	for range times {
		_, err := l.Reconcile(h.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: h.namespace, Name: "pg"}})
		if l.dead {
			return true
		}
		h.must(err)
		h.controllers()
	}
	return false
}

// told are the events of a leader so far.
func (l *leader) told() []string {
	var all []string
	for {
		select {
		case e := <-l.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// same holds that no claim and no Pod has gone, or is about to.
func (h *house) same() {
	h.Helper()
	for name, uid := range h.claims {
		claim := &corev1.PersistentVolumeClaim{}
		h.must(h.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, claim))
		if claim.UID != uid || claim.DeletionTimestamp != nil {
			h.Errorf("claim %s: UID %s, was %s, deleted at %v", name, claim.UID, uid, claim.DeletionTimestamp)
		}
	}
	for name, uid := range h.pods {
		pod := &corev1.Pod{}
		h.must(h.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, pod))
		if pod.UID != uid || pod.DeletionTimestamp != nil {
			h.Errorf("Pod %s: UID %s, was %s, deleted at %v", name, pod.UID, uid, pod.DeletionTimestamp)
		}
	}
}

func (h *house) records() int {
	h.Helper()
	var all corev1.SecretList
	h.must(h.List(h.Context(), &all, client.InNamespace("holdfast-system"), client.MatchingLabels{labelRecord: recordOfSets}))
	return len(all.Items)
}

// remade says whether a leader says that the set is being made anew.
func (h *house) remade(l *leader) bool {
	h.Helper()
	is, err := l.Remade(h.Context())
	h.must(err)
	if is(types.NamespacedName{Namespace: h.namespace, Name: "gp"}) {
		h.Error("a set is said to be made anew that nobody has saved")
	}
	return is(types.NamespacedName{Namespace: h.namespace, Name: "pg"})
}

// anew holds that the set was made anew, and is else what it was.
func (h *house) anew(before *appsv1.StatefulSet) {
	h.Helper()
	h.same()
	set := h.set()
	if set == nil || set.UID == before.UID || set.DeletionTimestamp != nil {
		h.Fatalf("the set is %+v", set)
	}
	want := before.DeepCopy()
	want.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if diff := cmp.Diff(want.Spec, set.Spec); diff != "" {
		h.Errorf("its spec (-want +got)\n%s", diff)
	}
	wantMeta := maps.Clone(before.Annotations)
	wantMeta[v1alpha1.AnnotationRecreatedFrom] = string(before.UID)
	if diff := cmp.Diff(wantMeta, set.Annotations); diff != "" {
		h.Errorf("its annotations (-want +got)\n%s", diff)
	}
	owners := func(s *appsv1.StatefulSet) (all []string) {
		for _, f := range s.ManagedFields {
			if f.Subresource == "" {
				all = append(all, fmt.Sprintf("%s %s %s", f.Manager, f.Operation, f.FieldsV1.GetRawString()))
			}
		}
		return all
	}
	if diff := cmp.Diff(owners(before), owners(set)); diff != "" {
		h.Errorf("who owns its fields (-want +got)\n%s", diff)
	}
	for name := range h.pods {
		pod := &corev1.Pod{}
		h.must(h.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, pod))
		if !controlled(pod, string(set.UID)) {
			h.Errorf("Pod %s is not under the set's control: %v", name, pod.OwnerReferences)
		}
	}
	if n := h.records(); n != 0 {
		h.Errorf("%d records are left", n)
	}
}

// TestRecreate holds what the API server makes of it, with the manager killed at
// each of its writes in turn, before and after it.
func TestRecreate(t *testing.T) {
	c := newCluster(t)
	killed := 0
	for write, over := 1, false; !over; write++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("killed at write %d, after it %v", write, after), func(t *testing.T) {
				c := &cluster{t, c.Client, c.watching}
				h := c.build(fmt.Sprintf("killed-%d-%v", write, after), "recreate", nil)
				before := h.set()
				if over = !h.pass(h.lead(true, write, after), 6); !over {
					killed++
					h.controllers()
					next := h.lead(true, 0, false)
					if h.set() == nil && !h.remade(next) {
						t.Error("the set is gone, and nothing tells that it will be there again: its claims look left behind")
					}
					if keys, err := next.load(t.Context()); err != nil || len(keys) != h.records() {
						t.Fatalf("the next leader has %v to go on with, and %d are saved: %v", keys, h.records(), err)
					}
					h.pass(next, 6)
				}
				h.anew(before)
				if h.remade(h.lead(true, 0, false)) {
					t.Error("the set was made anew, and is still said to be on its way")
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("killed %d times", killed)
	if killed < 14 {
		t.Errorf("it was killed %d times: there are more writes", killed)
	}
}

// TestSteadyStateWritesNothing: what is in step is left alone.
func TestSteadyStateWritesNothing(t *testing.T) {
	h := newCluster(t).build("steady", "recreate", nil)
	h.pass(h.lead(true, 0, false), 6)
	l := h.lead(true, 0, false)
	h.pass(l, 3)
	if told := l.told(); l.writes != 0 || len(told) > 0 {
		t.Errorf("%d writes, and %v is told of a set that is in step", l.writes, told)
	}
}

// TestLeftAlone: what is not to be made anew is told of once, and not changed.
func TestLeftAlone(t *testing.T) {
	c := newCluster(t)
	for name, tc := range map[string]struct {
		template string
		recreate bool
		change   func(*appsv1.StatefulSet)
		says     string // empty: nothing
	}{
		"argo":     {"recreate", true, func(s *appsv1.StatefulSet) { s.Annotations["argocd.argoproj.io/tracking-id"] = "x" }, "Argo CD keeps it"},
		"off":      {"recreate", false, nil, "statefulSetRecreate.enabled"},
		"report":   {"report", true, nil, "volumeClaimTemplate data asks for 1Gi, and its claims have 2Gi"},
		"raise":    {"none", true, nil, ""},
		"doubt":    {"doubt", true, nil, `StoragePolicy "unreadable" is not valid`},
		"unnative": {"recreate", true, func(s *appsv1.StatefulSet) { s.Finalizers = []string{"a.b/c"} }, "finalizer a.b/c"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{t, c.Client, c.watching}
			h := c.build(name, tc.template, tc.change)
			before, l := h.set(), h.lead(tc.recreate, 0, false)
			h.pass(l, 4)
			told := l.told()
			if tc.says == "" && len(told) > 0 || tc.says != "" && (len(told) != 1 || !strings.Contains(told[0], tc.says)) {
				t.Errorf("told %v, want %q once", told, tc.says)
			}
			if diff := cmp.Diff(before, h.set()); diff != "" || l.writes != 0 {
				t.Errorf("%d writes; the set (-was +is)\n%s", l.writes, diff)
			}
			h.same()
		})
	}
}

// TestSomebodyElseIsFaster: a set of the name that is made between deletion and
// creation is not touched, and the saved copy stays for people.
func TestSomebodyElseIsFaster(t *testing.T) {
	h := newCluster(t).build("faster", "recreate", nil)
	theirs := clean(h.set())
	l := h.lead(true, 0, false)
	for range 20 {
		_, err := l.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: h.namespace, Name: "pg"}})
		h.must(err)
		set := h.set()
		if set != nil && set.DeletionTimestamp != nil {
			break
		}
		h.controllers()
	}
	h.controllers() // the set goes
	if h.set() != nil {
		t.Fatal("the set is there: this shows nothing")
	}
	theirs.Spec.MinReadySeconds = 17
	h.make(theirs)
	l.told()
	h.pass(l, 3)
	set := h.set()
	if set.UID != theirs.UID || set.Spec.MinReadySeconds != 17 || whenDeleted(set) != "Delete" || h.records() != 1 {
		t.Errorf("their set is %+v, %d records", set, h.records())
	}
	if told := l.told(); len(told) != 1 || !strings.Contains(told[0], "made by somebody else") || !strings.Contains(told[0], nameOf(client.ObjectKeyFromObject(set))) {
		t.Errorf("told %v", told)
	}
	h.same()
}

// TestUnstableMeanwhile: a set that is saved, and whose Pod fails before it is
// deleted, stays until it is stable again, and says what it waits for.
func TestUnstableMeanwhile(t *testing.T) {
	h := newCluster(t).build("unstable", "recreate", nil)
	before := h.set()
	if !h.pass(h.lead(true, 2, false), 6) || h.records() != 1 {
		t.Fatal("the set is not saved: this shows nothing")
	}
	ready := func(n int32) {
		t.Helper()
		set := h.set()
		set.Status.ReadyReplicas, set.Status.AvailableReplicas = n, n
		h.must(h.Status().Update(t.Context(), set, client.FieldOwner("kube-controller-manager")))
	}
	ready(2)
	l := h.lead(true, 0, false)
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(before)}
	for range 3 {
		result, err := l.Reconcile(t.Context(), request)
		h.must(err)
		if result.RequeueAfter != later {
			t.Errorf("it is looked at again after %v, want %v", result.RequeueAfter, later)
		}
	}
	if told := l.told(); len(told) != 1 || !strings.Contains(told[0], ReasonRecreateWaits) || !strings.Contains(told[0], "2 ready") {
		t.Errorf("told %q, want once what it waits for", told)
	}
	if set := h.set(); set == nil || set.UID != before.UID {
		t.Fatalf("the set is %+v", set)
	}
	ready(3)
	h.pass(l, 6)
	h.anew(before)
}

// TestDeletedIsNotCounted: a set that its user deletes while it is to be made anew is
// none whose template is behind.
func TestDeletedIsNotCounted(t *testing.T) {
	h := newCluster(t).build("deleted", "recreate", nil)
	if !h.pass(h.lead(true, 2, false), 6) || h.records() != 1 {
		t.Fatal("the set is not saved: this shows nothing")
	}
	set := h.set()
	set.Status.ReadyReplicas, set.Status.AvailableReplicas = 2, 2
	h.must(h.Status().Update(t.Context(), set, client.FieldOwner("kube-controller-manager")))
	l := h.lead(true, 0, false)
	look := func() (behind float64) {
		t.Helper()
		_, err := l.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		h.must(err)
		return testutil.ToFloat64(l.metrics.behind.WithLabelValues(string(v1alpha1.RecreateSet)))
	}
	if got := look(); got != 1 {
		t.Fatalf("%v templates are behind, want 1: this shows nothing", got)
	}
	h.must(h.Delete(t.Context(), set))
	if got := look(); got != 0 || h.records() != 0 {
		t.Errorf("of a set that is deleted %v templates are behind, with %d records", got, h.records())
	}
}

// TestDeletionRefusedAfterAll: a webhook that refuses the deletion, and not its dry run,
// is asked once: the set is as it was, and says why.
func TestDeletionRefusedAfterAll(t *testing.T) {
	h := newCluster(t).build("refused", "recreate", nil)
	before, l := h.set(), h.lead(true, 0, false)
	refused := 0
	l.Client = interceptor.NewClient(l.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, is := o.(*appsv1.StatefulSet); is && len((&client.DeleteOptions{}).ApplyOptions(opts).DryRun) == 0 {
				refused++
				return apierrors.NewForbidden(appsv1.Resource("statefulsets"), o.GetName(), errors.New("the house forbids it"))
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	h.pass(l, 8)
	if set := h.set(); set == nil || set.UID != before.UID || whenDeleted(set) != "Delete" || h.records() != 0 {
		t.Errorf("the set is %+v, with %d records", set, h.records())
	}
	if told := l.told(); refused != 1 || len(told) != 1 || !strings.Contains(told[0], ReasonRecreateBlocked) || !strings.Contains(told[0], "the house forbids it") {
		t.Errorf("it was refused %d times, and told %q", refused, told)
	}
	h.same()
}
