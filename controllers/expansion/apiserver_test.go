//go:build envtest

package expansion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admissionregistration/v1"
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
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/internal/usage"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// TestGrower goes round by hand against one real API server. There is no resizer
// and no kubelet: what they would do, the tests do.
func TestGrower(t *testing.T) {
	cfg := testenv.APIServer(t)
	refuseOfThreeGiB(t, cfg)
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"grows":             grows,
		"refused":           refused,
		"unanswered":        unanswered,
		"changed meanwhile": changedMeanwhile,
		"killed":            killed,
		"conditions":        conditions,
		"approved":          approved,
		"one set, one size": oneSize,
		"made again":        madeAgain,
		"by hand":           byHand,
		"one node of two":   oneNodeOfTwo,
		"unreadable policy": unreadablePolicy,
	} {
		t.Run(name, func(t *testing.T) { test(t, cfg) })
	}
}

// refuseOfThreeGiB makes the API server refuse claims with a label that ask for
// 3 GiB, as a guardrail would.
func refuseOfThreeGiB(t *testing.T, cfg *rest.Config) {
	t.Helper()
	c := newHouse(t, cfg).c
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "not-three"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"persistentvolumeclaims"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "!('test/refuse' in object.metadata.?labels.orValue({})) || object.spec.resources.requests.storage != '3Gi'", Message: "the house forbids it"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "not-three"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "not-three", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, o := range []client.Object{policy, binding} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	probe := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", Labels: map[string]string{"test/refuse": "yes"}}}
	probe.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	probe.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}
	if err := testenv.Eventually(t.Context(), 30*time.Second, "the policy holds", func(ctx context.Context) (string, error) {
		if c.Create(ctx, probe.DeepCopy(), client.DryRunAll) == nil {
			return "a claim of 3Gi is let in", nil
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// wire is the manager's line to the API server. It counts writes, and after so
// many of them it is dead, as the manager is when it is killed.
type wire struct {
	next   http.RoundTripper
	about  string // the path of its namespace: claims of other tests are tidied up meanwhile
	writes atomic.Int32
	lives  atomic.Int32 // negative: all
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || !strings.Contains(req.URL.Path, w.about) {
		return w.next.RoundTrip(req)
	}
	n := w.writes.Add(1)
	if lives := w.lives.Load(); lives >= 0 && n > lives {
		return nil, errors.New("the manager is dead")
	}
	return w.next.RoundTrip(req)
}

// house is a namespace with a policy, and a grower that looks at it.
type house struct {
	t         *testing.T
	c         client.Client // of the tests
	cfg       *rest.Config
	wire      *wire
	clock     *clocktesting.FakeClock
	namespace string
	grower    *Grower
	told      *events.FakeRecorder
	samples   map[string]*usage.Sample // by claim
	failing   map[string]error         // by node
	asked     []usage.Node
	meanwhile func() // while the nodes are asked
}

// Read tells what the test says.
func (h *house) Read(_ context.Context, nodes []usage.Node) usage.Answer {
	h.asked = nodes
	if h.meanwhile != nil {
		h.meanwhile()
	}
	a := usage.Answer{Samples: map[types.NamespacedName]usage.Sample{}, Failed: map[string]error{}}
	for _, n := range nodes {
		if err := h.failing[n.Name]; err != nil {
			a.Failed[n.Name] = err
		}
	}
	for name, s := range h.samples {
		if s != nil {
			s.At = h.clock.Now()
			a.Samples[types.NamespacedName{Namespace: h.namespace, Name: name}] = *s
		}
	}
	return a
}

func newHouse(t *testing.T, cfg *rest.Config) *house {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &house{t: t, c: c, cfg: cfg, clock: clocktesting.NewFakeClock(now), samples: map[string]*usage.Sample{}, failing: map[string]error{}}
}

// move makes a namespace with a policy for it.
func move(t *testing.T, cfg *rest.Config, e *v1alpha1.PolicyExpansion) *house {
	t.Helper()
	h := newHouse(t, cfg)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "house-"}}
	h.must(h.c.Create(t.Context(), ns))
	h.namespace = ns.Name
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}, Provisioner: "ebs.csi.aws.com", AllowVolumeExpansion: ptr.To(true)}
	p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}, Spec: v1alpha1.StoragePolicySpec{
		Match:     v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns.Name}}},
		Expansion: e,
	}}
	for _, o := range []client.Object{class, p} {
		h.must(h.c.Create(t.Context(), o))
		t.Cleanup(func() { _ = h.c.Delete(context.Background(), o) })
	}
	h.restart()
	return h
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// restart is a manager that knows nothing but what the API server tells.
func (h *house) restart() {
	h.t.Helper()
	h.wire = &wire{about: "/namespaces/" + h.namespace + "/"}
	h.wire.lives.Store(-1)
	cfg := rest.CopyConfig(h.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { h.wire.next = next; return h.wire })
	c, err := client.New(cfg, client.Options{Scheme: h.c.Scheme()})
	h.must(err)
	h.told = events.NewFakeRecorder(100)
	h.grower = newGrower(c, h.told, Options{World: &world.World{Cache: c, Live: c, Clock: h.clock}, Usage: h, Clock: h.clock, Registry: prometheus.NewRegistry(), Every: time.Minute})
}

// claim is bound, and its volume is on a node.
func (h *house) claim(name, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	h.t.Helper()
	ctx, q := h.t.Context(), resource.MustParse(size)
	volume := h.namespace + "-" + name
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.StorageClassName, c.Spec.VolumeName = &h.namespace, volume
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: q}
	for _, f := range change {
		f(c)
	}
	h.must(h.c.Create(ctx, c))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests, StorageClassName: h.namespace,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: volume}},
		ClaimRef:               &corev1.ObjectReference{Namespace: h.namespace, Name: name, UID: c.UID},
	}}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "ebs.csi.aws.com", NodeName: h.node("a"), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	for _, o := range []client.Object{pv, va} {
		h.must(h.c.Create(ctx, o))
	}
	va.Status.Attached = true
	h.must(h.c.Status().Update(ctx, va))
	h.has(c, size)
	return c
}

// has is the resizer's work: the claim has a capacity, and nothing is under way.
func (h *house) has(c *corev1.PersistentVolumeClaim, size string) {
	h.t.Helper()
	h.status(c, fmt.Sprintf(`{"status":{"phase":"Bound","capacity":{"storage":%q},"allocatedResourceStatuses":null}}`, size))
}

func (h *house) status(c *corev1.PersistentVolumeClaim, patch string) {
	h.t.Helper()
	h.must(h.c.Status().Patch(h.t.Context(), c, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

func (h *house) change(c *corev1.PersistentVolumeClaim, patch string) {
	h.t.Helper()
	h.must(h.c.Patch(h.t.Context(), c, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// node makes a node once.
func (h *house) node(name string) string {
	h.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.namespace + "-" + name}}
	h.must(client.IgnoreAlreadyExists(h.c.Create(h.t.Context(), n)))
	return n.Name
}

// round goes round once a minute later, and answers how often it wrote.
func (h *house) round() int32 {
	h.t.Helper()
	h.clock.Step(time.Minute)
	before := h.wire.writes.Load()
	if err := h.grower.Round(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return h.wire.writes.Load() - before
}

// asks says what a claim asks for.
func (h *house) asks(name, size string) {
	h.t.Helper()
	c := h.get(name)
	if got := c.Spec.Resources.Requests.Storage(); got.Cmp(resource.MustParse(size)) != 0 {
		h.t.Errorf("claim %s asks for %s, want %s; conditions %+v", name, got, size, c.Status.Conditions)
	}
}

func (h *house) get(name string) *corev1.PersistentVolumeClaim {
	h.t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	h.must(h.c.Get(h.t.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, c))
	return c
}

// reason of the condition that a claim carries; empty: it has none.
func (h *house) reason(name string, kind corev1.PersistentVolumeClaimConditionType) string {
	h.t.Helper()
	if c := conditionOf(h.get(name), kind); c != nil {
		return c.Reason
	}
	return ""
}

// events are those told since the last call.
func (h *house) events() string {
	var all []string
	for {
		select {
		case e := <-h.told.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func (h *house) counted(result string) float64 {
	return testutil.ToFloat64(h.grower.metrics.results.WithLabelValues(result))
}

// steady goes round again and again: nothing is written.
func (h *house) steady() {
	h.t.Helper()
	for range 5 {
		if n := h.round(); n != 0 {
			h.t.Errorf("%d writes though nothing has changed", n)
		}
	}
}

func grows(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("4Gi"))
	c := h.claim("data", "1Gi")
	h.claim("other", "1Gi")
	h.samples["data"], h.samples["other"] = used("1000Mi", 50), used("1000Mi", 50)
	h.steady()
	h.samples["data"] = used("1000Mi", 80)
	if n := h.round(); n != 1 {
		t.Errorf("%d writes, want one: the size and its record", n)
	}
	h.asks("data", "2Gi")
	h.asks("other", "1Gi")
	if told := h.events(); told != "" || h.counted(resultCompleted) != 0 {
		t.Errorf("the request is told: %s", told)
	}
	if since := testutil.ToFloat64(h.grower.metrics.inFlight); since != float64(h.clock.Now().Unix()) {
		t.Errorf("in flight since %v, want %d", since, h.clock.Now().Unix())
	}
	h.steady()
	h.has(c, "2Gi")
	h.samples["data"] = used("2000Mi", 40)
	h.round()
	if told := h.events(); !strings.Contains(told, "Normal Expanded the claim has grown from 1Gi to 2Gi by StoragePolicy "+h.namespace) || h.counted(resultCompleted) != 1 {
		t.Errorf("the completion is not told: %q, %v", told, h.counted(resultCompleted))
	}
	if left := testutil.ToFloat64(h.grower.metrics.budgetLeft.WithLabelValues(h.namespace)); left != 3 {
		t.Errorf("the budget leaves %v, want 3 of EBS's 4", left)
	}
	h.steady()
	h.restart()
	h.steady()
	if told := h.events(); told != "" {
		t.Errorf("after a restart it is told again: %s", told)
	}
}

func refused(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("10Gi"))
	h.claim("data", "2Gi", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"test/refuse": "yes"} })
	h.samples["data"] = used("2000Mi", 90)
	h.round()
	h.asks("data", "2Gi")
	if reason := h.reason("data", v1alpha1.ConditionExpansionBlocked); reason != v1alpha1.ReasonRefused || h.counted(resultRefused) != 1 {
		t.Errorf("condition %q, counted %v", reason, h.counted(resultRefused))
	}
	if c := conditionOf(h.get("data"), v1alpha1.ConditionExpansionBlocked); !strings.Contains(c.Message, "the house forbids it") {
		t.Errorf("the condition says %q, and not why", c.Message)
	}
	if h.get("data").Annotations[v1alpha1.AnnotationModifications] != "" {
		t.Error("a size that was refused is recorded as a modification")
	}
	h.steady()
	h.clock.Step(refusedFor)
	if h.round(); h.counted(resultRefused) != 2 {
		t.Errorf("after %v it is asked for %v times, want a second time", refusedFor, h.counted(resultRefused))
	}
	h.change(h.get("data"), `{"metadata":{"labels":{"test/refuse":null}}}`)
	h.clock.Step(refusedFor)
	h.round()
	h.asks("data", "3Gi")
	h.round()
	if reason := h.reason("data", v1alpha1.ConditionExpansionBlocked); reason != "" {
		t.Errorf("it grows and is said to be blocked: %s", reason)
	}
}

// unanswered: a webhook that everybody's changes need, and that is not there, keeps the
// claim from growing, and the claim says so.
func unanswered(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("10Gi"))
	h.claim("data", "2Gi")
	h.samples["data"] = used("2000Mi", 90)
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "nobody.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		ClientConfig:      admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: h.namespace}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Update}, Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumeclaims"},
		}}},
	}}}
	h.must(h.c.Create(t.Context(), hook))
	t.Cleanup(func() { _ = h.c.Delete(context.Background(), hook) })
	try := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	h.must(testenv.Eventually(t.Context(), 30*time.Second, "the webhook is asked", func(ctx context.Context) (string, error) {
		if h.c.Patch(ctx, h.get("data"), try, client.DryRunAll) == nil {
			return "the claim can be changed", nil
		}
		return "", nil
	}))
	if err := h.grower.Round(t.Context()); err == nil {
		t.Error("it is no error that a claim cannot be asked to grow")
	}
	c := conditionOf(h.get("data"), v1alpha1.ConditionExpansionBlocked)
	if c == nil || c.Reason != v1alpha1.ReasonRefused || !strings.Contains(c.Message, "nobody.example.com") {
		t.Errorf("the condition is %+v, and does not name the webhook", c)
	}
	if told := h.events(); !strings.Contains(told, "nobody.example.com") {
		t.Errorf("told was %q", told)
	}
	h.must(h.c.Delete(t.Context(), hook))
	h.must(testenv.Eventually(t.Context(), 30*time.Second, "the webhook is gone", func(ctx context.Context) (string, error) {
		if err := h.c.Patch(ctx, h.get("data"), try, client.DryRunAll); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}))
	h.round()
	h.asks("data", "3Gi")
	if reason := h.reason("data", v1alpha1.ConditionExpansionBlocked); reason != "" {
		t.Errorf("it grows and is said to be blocked: %s", reason)
	}
}

func changedMeanwhile(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("10Gi"))
	c := h.claim("data", "2Gi")
	h.samples["data"] = used("2000Mi", 90)
	h.meanwhile = func() { h.change(c, `{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}`) }
	h.round()
	h.asks("data", "5Gi")
	h.meanwhile = nil
	h.round()
	h.asks("data", "5Gi")
}

// killed: wherever the manager dies, the next one knows of each modification.
func killed(t *testing.T, cfg *rest.Config) {
	e := policyOf("10Gi", budget(1, 86400, 0))
	e.CooldownSeconds = ptr.To[int32](0)
	h := move(t, cfg, e)
	c := h.claim("data", "1Gi")
	h.samples["data"] = used("1000Mi", 90)
	h.wire.lives.Store(0)
	h.clock.Step(time.Minute)
	if err := h.grower.Round(t.Context()); err == nil {
		t.Fatal("the manager is dead, and does not say so")
	}
	h.asks("data", "1Gi")
	h.restart()
	h.wire.lives.Store(1) // the size is asked for, and that is all
	h.round()
	h.asks("data", "2Gi")
	h.has(c, "2Gi")
	h.samples["data"] = used("2000Mi", 99)
	h.restart()
	for range 4 {
		h.round()
	}
	h.asks("data", "2Gi")
	if reason := h.reason("data", v1alpha1.ConditionExpansionBlocked); reason != v1alpha1.ReasonBudgetSpent {
		t.Errorf("blocked by %q, want %s", reason, v1alpha1.ReasonBudgetSpent)
	}
	if told := h.events(); strings.Count(told, "Expanded") != 1 {
		t.Errorf("the completion is told otherwise than once: %s", told)
	}
}

func conditions(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("2Gi"))
	c := h.claim("data", "2Gi")
	h.status(c, `{"status":{"conditions":[{"type":"example.com/Foreign","status":"True"}]}}`)
	h.samples["data"] = used("2000Mi", 90)
	if n := h.round(); n != 1 {
		t.Errorf("%d writes, want one", n)
	}
	if reason := h.reason("data", v1alpha1.ConditionExpansionBlocked); reason != v1alpha1.ReasonAtMaximum {
		t.Errorf("blocked by %q, want %s", reason, v1alpha1.ReasonAtMaximum)
	}
	if n := testutil.ToFloat64(h.grower.metrics.atMax.WithLabelValues(h.namespace)); n != 1 {
		t.Errorf("%v claims at their maximum, want 1", n)
	}
	if told := h.events(); strings.Count(told, "Warning AtMaximum") != 1 {
		t.Errorf("told: %q", told)
	}
	h.steady()
	h.samples["data"] = nil
	h.round() // unknown is told once
	h.steady()
	if told := h.events(); strings.Count(told, "UsageUnknown") != 1 {
		t.Errorf("told: %q, want once that nothing is known", told)
	}
	if h.reason("data", v1alpha1.ConditionExpansionBlocked) == "" {
		t.Error("a condition goes since nothing is known")
	}
	h.samples["data"] = used("2000Mi", 10)
	h.round()
	if h.reason("data", v1alpha1.ConditionExpansionBlocked) != "" || h.reason("data", "example.com/Foreign") != "" || conditionOf(h.get("data"), "example.com/Foreign") == nil {
		t.Errorf("conditions %+v, want the foreign one alone", h.get("data").Status.Conditions)
	}
	h.steady()
}

func approved(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("10Gi", approve))
	c := h.claim("data", "2Gi")
	h.samples["data"] = used("2000Mi", 90)
	h.round()
	h.steady()
	h.asks("data", "2Gi")
	if reason := h.reason("data", v1alpha1.ConditionExpansionProposed); reason != v1alpha1.ReasonAwaitsApproval {
		t.Errorf("proposed: %q", reason)
	}
	h.change(c, `{"metadata":{"annotations":{"holdfast.dev/approve-size":"3Gi"}}}`)
	h.round()
	h.asks("data", "3Gi")
	h.has(c, "3Gi")
	h.samples["data"] = used("3000Mi", 90)
	for range 20 { // past the cooldown
		h.round()
	}
	h.asks("data", "3Gi")
	if m := conditionOf(h.get("data"), v1alpha1.ConditionExpansionProposed); m == nil || !strings.Contains(m.Message, "approve-size=4Gi") {
		t.Errorf("the next proposal is %+v", m)
	}
}

func oneSize(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("20Gi"))
	stamped := func(uid, set, ordinal string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationSetUID: uid, v1alpha1.AnnotationSetName: set, v1alpha1.AnnotationSetTemplate: "data", v1alpha1.AnnotationSetOrdinal: ordinal}
		}
	}
	h.claim("data-pg-0", "10Gi", stamped("one", "pg", "0"))
	h.claim("data-pg-1", "5Gi", stamped("one", "pg", "1"))
	h.claim("data-pg-2", "5Gi", stamped("one", "pg", "2"))
	h.claim("data-web-0", "5Gi", stamped("another", "web", "0"))
	// Made from the manifest of data-pg-0: the stamps were copied along.
	h.claim("copy-large", "15Gi", stamped("one", "pg", "0"))
	h.claim("copy-small", "2Gi", stamped("one", "pg", "0"))
	for _, name := range []string{"data-pg-0", "data-pg-1", "data-web-0", "copy-large", "copy-small"} { // nobody mounts data-pg-2
		h.samples[name] = used("5Gi", 10)
	}
	h.round()
	h.asks("data-pg-0", "10Gi")
	h.asks("data-pg-1", "10Gi")
	h.asks("data-pg-2", "5Gi")
	h.asks("data-web-0", "5Gi")
	h.asks("copy-small", "2Gi")
}

// madeAgain: a claim is not taken for as full as the one of its name before it, of
// which kubelet may tell for a while yet.
func madeAgain(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("50Gi"))
	old := h.claim("data", "10Gi")
	h.samples["data"] = used("10Gi", 50)
	h.round()
	h.change(old, `{"metadata":{"finalizers":null}}`)
	h.must(h.c.Delete(t.Context(), old))
	h.round()
	again := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name}, Spec: old.Spec}
	h.must(h.c.Create(t.Context(), again))
	h.has(again, "10Gi")
	h.samples["data"] = used("10Gi", 90)
	h.round()
	h.round()
	h.asks("data", "10Gi")
	if told := h.events(); told != "" {
		t.Errorf("told was %s", told)
	}
	h.round() // by now it is this claim's
	h.asks("data", "12Gi")
}

func byHand(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("20Gi"))
	c := h.claim("data", "1Gi")
	h.samples["data"] = used("1000Mi", 10)
	h.round()
	h.change(c, `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	h.round()
	h.steady()
	h.restart()
	h.change(c, `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
	h.has(c, "3Gi")
	h.round()
	if left := testutil.ToFloat64(h.grower.metrics.budgetLeft.WithLabelValues(h.namespace)); left != 2 {
		t.Errorf("the budget leaves %v after two changes by hand, want 2", left)
	}
	if told := h.events(); strings.Contains(told, "Expanded") || h.counted(resultCompleted) != 0 {
		t.Errorf("what was done by hand is told as the policy's: %s", told)
	}
	h.steady()
}

// oneNodeOfTwo: only nodes that have guarded claims are asked, and one that does
// not answer costs its own claims alone.
func oneNodeOfTwo(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("20Gi"))
	h.node("unused")
	h.claim("here", "1Gi")
	h.samples["here"] = used("1000Mi", 90)
	h.claim("there", "1Gi")
	b := h.node("b")
	va := &storagev1.VolumeAttachment{}
	h.must(h.c.Get(t.Context(), client.ObjectKey{Name: h.namespace + "-there"}, va))
	h.must(h.c.Delete(t.Context(), va))
	moved := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: va.Name + "-b"}, Spec: va.Spec}
	moved.Spec.NodeName = b
	h.must(h.c.Create(t.Context(), moved))
	moved.Status.Attached = true
	h.must(h.c.Status().Update(t.Context(), moved))
	h.failing[b] = errors.New("it is dead")
	h.round()
	h.asks("here", "2Gi")
	h.asks("there", "1Gi")
	var asked []string
	for _, n := range h.asked {
		if name, own := strings.CutPrefix(n.Name, h.namespace+"-"); own { // other tests' policies may still be there
			asked = append(asked, name)
		}
	}
	if got := strings.Join(asked, " "); got != "a b" {
		t.Errorf("nodes %q are asked, want a and b", got)
	}
}

// unreadablePolicy: where one of higher priority cannot be read a lower one grows
// nothing, and the claim says why; where it surely is about others it does.
func unreadablePolicy(t *testing.T, cfg *rest.Config) {
	h := move(t, cfg, policyOf("10Gi"))
	h.claim("data", "2Gi")
	h.samples["data"] = used("2000Mi", 90)
	broken := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: h.namespace + "-broken"}, Spec: v1alpha1.StoragePolicySpec{
		Priority: 100, Match: v1alpha1.PolicyMatch{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: h.namespace}},
			ClaimSelector:     &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is"}}},
		},
		Expansion: policyOf("2Gi"),
	}}
	h.must(h.c.Create(t.Context(), broken))
	t.Cleanup(func() { _ = h.c.Delete(context.Background(), broken) })
	h.round()
	h.asks("data", "2Gi")
	if c := conditionOf(h.get("data"), v1alpha1.ConditionExpansionBlocked); c == nil || c.Reason != v1alpha1.ReasonInvalidPolicy || !strings.Contains(c.Message, broken.Name) {
		t.Errorf("blocked: %+v, want for StoragePolicy %s", c, broken.Name)
	}
	h.steady()
	was := broken.DeepCopy()
	broken.Spec.Match.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: "elsewhere"}
	h.must(h.c.Patch(t.Context(), broken, client.MergeFrom(was)))
	h.round()
	h.asks("data", "3Gi")
}
