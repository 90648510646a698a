//go:build envtest

package webhooks_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/holdfast-dev/holdfast/api/v1alpha1"
	"github.com/holdfast-dev/holdfast/internal/snapshots"
	"github.com/holdfast-dev/holdfast/webhooks"
	"github.com/holdfast-dev/holdfast/webhooks/admit"
	"github.com/holdfast-dev/holdfast/webhooks/world"
)

// answerSize bounds what one refusal may tell, in bytes: it goes to a terminal.
const answerSize = 16 << 10

// testMany: with 300 policies that all have something to say a claim is still
// judged, Deny beats Warn, and the answer can be read.
func testMany(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "many"})
	ctx, c := t.Context(), server.client
	mark := map[string]string{"of": "many"}
	t.Cleanup(func() {
		if err := c.DeleteAllOf(context.Background(), &v1alpha1.StoragePolicy{}, client.MatchingLabels(mark)); err != nil {
			t.Error(err)
		}
	})
	const all, denying = 300, 100
	for i := range all {
		p := &v1alpha1.StoragePolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%03d", i), Labels: mark}}
		p.Spec.Priority = int32(i)
		p.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "many"}}
		p.Spec.Guardrails = &v1alpha1.Guardrails{Action: v1alpha1.Deny, Claim: &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("4Gi"))}}
		if i >= denying {
			p.Spec.Guardrails.Action = v1alpha1.Warn
			p.Spec.Guardrails.Claim.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		}
		create(t, p)
	}
	var refusal error
	eventually(t, "all policies hold", func() error {
		refusal = c.Create(ctx, claimOf(ns, "a", "5Gi", nil), client.DryRunAll)
		if !apierrors.IsForbidden(refusal) || !strings.Contains(refusal.Error(), "and 50 further findings") {
			return fmt.Errorf("100 policies deny, of which 50 are told: %w", refusal)
		}
		return nil
	})
	refused(t, "the first policies that deny are named, those with the highest priority", refusal, "many-099", "many-050", "claim.maxSize")
	if n := len(refusal.Error()); n > answerSize {
		t.Errorf("the refusal has %d bytes, want at most %d", n, answerSize)
	}
	server.warnings.taken()
	accepted(t, "a claim that keeps all of them", c.Create(ctx, claimOf(ns, "b", "4Gi", nil)))
	if w := server.warnings.taken(); w != "" {
		t.Errorf("it is warned of: %s", w)
	}
	accepted(t, "a claim that only policies with Warn are against", c.Create(ctx, claimOf(ns, "c", "1Gi", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})))
	if w := server.warnings.taken(); !strings.Contains(w, "claim.accessModes") || len(w) > answerSize {
		t.Errorf("its warnings have %d bytes: %s", len(w), w)
	}
}

// testEverything: a policy that matches everything cannot touch what runs the
// cluster or Holdfast itself, whatever labels those namespaces have.
func testEverything(t *testing.T) {
	ctx, c := t.Context(), server.client
	plain := namespace(t, nil)
	for _, name := range v1alpha1.SystemNamespaces() {
		if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	policy(t, v1alpha1.StoragePolicySpec{
		Priority: 1000,
		Defaults: &v1alpha1.PolicyDefaults{StorageClassName: "given"},
		Guardrails: &v1alpha1.Guardrails{
			Claim:           &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("1Gi"))},
			StatefulSet:     &v1alpha1.StatefulSetRules{WhenDeleted: v1alpha1.RetainClaims, PodDisruptionBudget: v1alpha1.Required},
			SnapshotClass:   &v1alpha1.SnapshotClassRules{DeletionPolicy: "Retain"},
			Deletion:        &v1alpha1.DeletionRules{Protect: v1alpha1.ProtectAlways, Allow: v1alpha1.AllowOverrideOnly},
			ScaleDown:       &v1alpha1.ScaleDownRules{SnapshotNotOlderThanSeconds: 60},
			AttributesClass: &v1alpha1.AttributesClassRules{Allowed: []string{"silver"}},
		},
	}, claimOf(plain, "probe", "5Gi", nil))
	for _, name := range v1alpha1.SystemNamespaces() {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{}
			accepted(t, "read", c.Get(ctx, client.ObjectKey{Name: name}, ns))
			strict := ns.DeepCopy()
			strict.Labels[v1alpha1.LabelEnforce] = v1alpha1.EnforceStrict
			accepted(t, "label it strict", c.Update(ctx, strict))
			server.warnings.taken()
			large := claimOf(name, "large", "5Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = nil })
			accepted(t, "a large claim that names no class", c.Create(ctx, large))
			if got := large.Spec.StorageClassName; got != nil {
				t.Errorf("it is given the class %q", *got)
			}
			accepted(t, "is deleted", c.Delete(ctx, large))
			held := claimOf(name, "data-pg-1", "5Gi", bound)
			accepted(t, "a claim with a volume", c.Create(ctx, held))
			set := setOf(name, "pg", func(s *appsv1.StatefulSet) {
				s.Spec.Replicas = ptr[int32](2)
				s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
				s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Delete"}
			})
			accepted(t, "a set that would delete its claims", c.Create(ctx, set))
			accepted(t, "is scaled down", c.SubResource("scale").Update(ctx, set.DeepCopy(), client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}})))
			accepted(t, "and deleted with its claims", c.Delete(ctx, set))
			copied := snapshot(t, name, "newest", held.Name, time.Now().Add(time.Second))
			accepted(t, "the newest snapshot is deleted", c.Delete(ctx, copied))
			accepted(t, "the claim is deleted", c.Delete(ctx, held))
			accepted(t, "what Holdfast keeps there is written", c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "holdfast-webhook-certificates"}}))
			accepted(t, "and its lease", c.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "holdfast-manager"}}))
			if w := server.warnings.taken(); w != "" {
				t.Errorf("warned of: %s", w)
			}
			latest := &corev1.Namespace{}
			accepted(t, "read", c.Get(ctx, client.ObjectKey{Name: name}, latest))
			delete(latest.Labels, v1alpha1.LabelEnforce)
			accepted(t, "the strict label is taken off", c.Update(ctx, latest))
		})
	}
	p := &v1alpha1.StoragePolicy{}
	accepted(t, "read", c.Get(ctx, client.ObjectKey{Name: "testwebhooks-everything"}, p))
	p.Labels = map[string]string{"a": "b"}
	accepted(t, "the policy itself can be changed", c.Update(ctx, p))
	families, err := server.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "policy" && l.GetValue() == p.Name {
					t.Errorf("the policy found something in a system namespace: %v", m)
				}
			}
		}
	}
}

// link is the network between a manager and its API server.
type link struct {
	*httptest.Server
	mu    sync.Mutex
	holds func(*http.Request) bool // what gets no answer
	let   chan struct{}            // closed when holds changes
	cut   bool
}

// newLink passes on to the shared API server, with its credentials.
func newLink(t *testing.T) *link {
	t.Helper()
	transport, err := rest.TransportFor(server.cfg)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(server.cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	if to.Scheme == "" || to.Host == "" {
		to = &url.URL{Scheme: "https", Host: server.cfg.Host}
	}
	l := &link{let: make(chan struct{})}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			l.mu.Lock()
			held, cut, let := l.holds != nil && l.holds(r), l.cut, l.let
			l.mu.Unlock()
			if cut {
				panic(http.ErrAbortHandler)
			}
			if !held {
				break
			}
			select {
			case <-let:
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { l.set(true, nil); l.CloseClientConnections(); l.Close() })
	return l
}

func (l *link) set(cut bool, holds func(*http.Request) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.holds = cut, holds
	close(l.let)
	l.let = make(chan struct{})
}

// lists are what informers ask.
func lists(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("resourceVersion") || q.Has("watch") || q.Has("limit")
}

// apart is a manager behind a link of its own, asked by the test itself.
type apart struct {
	ctrl.Manager
	url string
	mu  sync.Mutex
	log strings.Builder
}

func newApart(t *testing.T, l *link) *apart {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	a := &apart{url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	logger := funcr.New(func(prefix, args string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		fmt.Fprintln(&a.log, prefix, args)
	}, funcr.Options{})
	a.Manager, err = ctrl.NewManager(&rest.Config{Host: l.URL, QPS: -1}, ctrl.Options{
		Scheme: scheme(), Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: server.certDir}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := webhooks.Add(a, world.Of(a, snapshots.NewIndex(a.GetFieldIndexer())), prometheus.NewRegistry(), false); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	eventually(t, "the webhooks are served", func() error { return a.GetWebhookServer().StartedChecker()(nil) })
	return a
}

// logged is what the manager has logged so far.
func (a *apart) logged() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.String()
}

// webhookTimeout is timeoutSeconds of the webhook configurations.
const webhookTimeout = 5 * time.Second

// created asks what becomes of the creation of a claim: a status other than 200
// leaves it to the webhook's failurePolicy.
func (a *apart) created(t *testing.T, claim *corev1.PersistentVolumeClaim) (status int, allowed bool, text string) {
	t.Helper()
	raw, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, Operation: admissionv1.Create, Namespace: claim.Namespace, Name: claim.Name,
	}}
	review.Request.Object.Raw = raw
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), webhookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/validate/claims", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("no answer within the webhook's timeout: %v", err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, false, string(answer)
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &got); err != nil || got.Response == nil {
		t.Fatalf("answered %s: %v", answer, err)
	}
	return res.StatusCode, got.Response.Allowed, string(answer)
}

// cannotJudge holds that a claim gets an answer that is no verdict, within the
// webhook's timeout, and that the log says why.
func (a *apart) cannotJudge(t *testing.T, claim *corev1.PersistentVolumeClaim, why string) {
	t.Helper()
	begin := time.Now()
	status, _, text := a.created(t, claim)
	took := time.Since(begin)
	if status != http.StatusInternalServerError || !strings.Contains(text, why) {
		t.Errorf("answered %d %s after %v, want a fault that says %q", status, text, took, why)
	}
	if took < admit.Timeout-time.Second {
		t.Errorf("gave up after %v, though it has %v", took, admit.Timeout)
	}
	if log := a.logged(); !strings.Contains(log, "Cannot judge") || !strings.Contains(log, why) {
		t.Errorf("the log says nothing of %q: %s", why, log)
	}
}

// testLink: a manager whose API server does not answer, answers late, or is
// away for a while. What cannot be judged is a fault within the webhook's
// timeout, so that failurePolicy decides; what the informers have is judged.
func testLink(t *testing.T) {
	ns := namespace(t, map[string]string{"kind": "link"})
	spec := v1alpha1.StoragePolicySpec{
		Match: v1alpha1.PolicyMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "link"}}},
		Guardrails: &v1alpha1.Guardrails{
			Claim:        &v1alpha1.ClaimRules{MaxSize: ptr(resource.MustParse("4Gi"))},
			StorageClass: &v1alpha1.StorageClassRules{Parameters: []v1alpha1.ParameterRule{{Key: "encrypted", Values: []string{"true"}}}},
		},
	}
	large := claimOf(ns, "large", "5Gi", nil)
	policy(t, spec, large)
	l := newLink(t)
	l.set(false, lists)
	a := newApart(t, l)
	a.cannotJudge(t, large, "list StoragePolicies")
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if a.GetCache().WaitForCacheSync(short) {
		t.Error("the informers are taken for synced, though nothing was listed")
	}
	judges := func(what string, claim *corev1.PersistentVolumeClaim, rule string) {
		t.Helper()
		eventually(t, what, func() error {
			if status, allowed, text := a.created(t, claim); status != http.StatusOK || allowed || !strings.Contains(text, rule) {
				return fmt.Errorf("answered %d %s", status, text)
			}
			return nil
		})
	}
	l.set(false, nil)
	judges("once lists are answered it judges", large, "claim.maxSize")

	slow := claimOf(ns, "slow", "1Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.StorageClassName = ptr("slow") })
	l.set(false, func(r *http.Request) bool { return lists(r) || strings.HasSuffix(r.URL.Path, "/storageclasses/slow") })
	l.CloseClientConnections() // so that the informers do not see the class
	create(t, classOf("slow", "ebs.csi.aws.com", nil))
	a.cannotJudge(t, slow, "look up StorageClass slow")
	judges("what needs no live read is judged meanwhile", large, "claim.maxSize")
	l.set(false, nil)
	judges("the class is judged once it can be read", slow, "storageClass.parameters")

	l.set(true, nil)
	l.CloseClientConnections()
	judges("with the API server away the informers' state is judged by", large, "claim.maxSize")
	later := spec.DeepCopy()
	later.Guardrails = &v1alpha1.Guardrails{Claim: &v1alpha1.ClaimRules{VolumeModes: []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem}}}
	block := claimOf(ns, "block", "1Gi", func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) })
	t.Run("meanwhile", func(t *testing.T) {
		policy(t, *later, block)
		if status, allowed, text := a.created(t, block); status != http.StatusOK || !allowed {
			t.Errorf("a policy that it cannot know is held: %d %s", status, text)
		}
		l.set(false, nil)
		judges("a policy of meanwhile holds once the API server is back", block, "claim.volumeModes")
	})
}
