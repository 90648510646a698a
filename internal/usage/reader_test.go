package usage

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// authority signs the certificates of kubelets.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    atomic.Int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, a.cert = a.make(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func (a *authority) make(template *x509.Certificate, parent *authority) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(a.n.Add(1)), pkix.Name{CommonName: fmt.Sprintf("test %d", a.n.Load())}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	by, with := template, key
	if parent != nil {
		by, with = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, with)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

// serving is a certificate for 127.0.0.1, and for names.
func (a *authority) serving(names ...string) *tls.Certificate {
	a.t.Helper()
	key, cert := a.make(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, a)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// kubelet answers as kubelet does, over TLS and to who has a token that it knows.
type kubelet struct {
	*httptest.Server
	mu           sync.Mutex
	cert         *tls.Certificate
	answers      map[string]http.HandlerFunc
	asked        []string
	shown        []string                         // tokens
	admit        func(token, resource string) int // nil: those of an api
	certificates int                              // of clients, that it was shown
}

// last is the token that it was shown last.
func (k *kubelet) last() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.shown) == 0 {
		return ""
	}
	return k.shown[len(k.shown)-1]
}

// api answers what the manager asks the API server for: tokens, each another one.
type api struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	given  int
	life   time.Duration // that it gives; 0: what is asked for
	refuse string        // what it says instead
}

const (
	managers = "the manager's"
	tokenOf  = "token-of-holdfast-usage-"
)

func startAPI(t *testing.T, a *authority) *api {
	t.Helper()
	s := &api{t: t}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*a.serving("kubernetes.default")}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *api) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Method != http.MethodPost || req.URL.Path != "/api/v1/namespaces/holdfast-system/serviceaccounts/holdfast-usage/token" || req.Header.Get("Authorization") != "Bearer "+managers {
		s.t.Errorf("the API server was asked %s %s with %q", req.Method, req.URL.Path, req.Header.Get("Authorization"))
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		s.t.Error(err)
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	asked, is := decoded.(*authenticationv1.TokenRequest)
	if err != nil || !is {
		s.t.Errorf("the API server was asked %q: %v", body, err)
		return
	}
	if asked.Spec.Audiences != nil || asked.Spec.ExpirationSeconds == nil || *asked.Spec.ExpirationSeconds != 600 {
		s.t.Errorf("asked for %+v, want 600 seconds and no audience", asked.Spec)
	}
	w.Header().Set("Content-Type", "application/json")
	if s.refuse != "" {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: s.refuse})
		return
	}
	s.given++
	if s.life > 0 {
		asked.Spec.ExpirationSeconds = new(int64(s.life / time.Second))
	}
	asked.APIVersion, asked.Kind = "authentication.k8s.io/v1", "TokenRequest"
	// Its clock is another: this one tells nothing.
	asked.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprint(tokenOf, s.given), ExpirationTimestamp: metav1.NewTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(asked)
}

// config is how the manager reaches it.
func (s *api) config(a *authority) *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: managers, TLSClientConfig: rest.TLSClientConfig{CAData: a.pem(), ServerName: "kubernetes.default"}}
}

func (s *api) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func startKubelet(t *testing.T, a *authority, answers map[string]http.HandlerFunc) *kubelet {
	t.Helper()
	k := &kubelet{cert: a.serving(), answers: answers}
	k.Server = httptest.NewUnstartedServer(k)
	k.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return &tls.Config{Certificates: []tls.Certificate{*k.cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}, nil
	}}
	k.StartTLS()
	t.Cleanup(k.Close)
	return k
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	resource := map[string]string{"/metrics": "metrics", "/stats/summary": "stats"}[req.URL.Path]
	k.mu.Lock()
	k.certificates += len(req.TLS.PeerCertificates)
	k.asked, k.shown = append(k.asked, req.URL.Path), append(k.shown, token)
	answer, admit := k.answers[req.URL.Path], k.admit
	k.mu.Unlock()
	if admit == nil {
		admit = func(token, _ string) int {
			if strings.HasPrefix(token, tokenOf) {
				return http.StatusOK
			}
			return http.StatusUnauthorized
		}
	}
	switch code := admit(token, resource); {
	case code != http.StatusOK:
		w.WriteHeader(code)
	case answer == nil:
		w.WriteHeader(http.StatusForbidden)
	default:
		answer(w, req)
	}
}

func (k *kubelet) questions() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.asked = nil }()
	return strings.Join(k.asked, " ")
}

func (k *kubelet) node(name string) Node {
	return Node{Name: name, Address: strings.TrimPrefix(k.URL, "https://")}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// exposition is what kubelet tells of a claim, among other things.
func exposition(claim string, capacity, available int64) string {
	labels := fmt.Sprintf(`{namespace="db",persistentvolumeclaim=%q}`, claim)
	return "# HELP kubelet_volume_stats_available_bytes [ALPHA] Number of available bytes in the volume\n# TYPE kubelet_volume_stats_available_bytes gauge\n" +
		fmt.Sprintf("kubelet_volume_stats_available_bytes%s %e\nkubelet_volume_stats_capacity_bytes%s %e\nkubelet_volume_stats_inodes%s 1000\nkubelet_volume_stats_inodes_free%s 900\nkubelet_volume_stats_used_bytes%s 1\nkubelet_running_pods 7\n",
			labels, float64(available), labels, float64(capacity), labels, labels, labels)
}

const summary = `{"node": {"nodeName": "a", "systemContainers": [{"name": "kubelet"}]}, "pods": [
 {"podRef": {"name": "pg-0"}, "containers": [{"name": "x", "volume": [{"pvcRef": {"name": "no"}}]}], "volume": [
  {"name": "tmp", "capacityBytes": 5, "availableBytes": 1},
  {"name": "data", "pvcRef": {"name": "data", "namespace": "db"}, "capacityBytes": 1000, "availableBytes": 100, "inodes": 0, "inodesFree": 0}]},
 {"podRef": {"name": "web"}}]}`

func reader(t *testing.T, a *authority, change ...func(*Options)) (*Reader, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	o := Options{Namespace: "holdfast-system", Clock: clock.RealClock{}, Registry: registry}
	for _, f := range change {
		f(&o)
	}
	if o.Config == nil {
		o.Config = startAPI(t, a).config(a)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r, registry
}

// free are the free bytes of the claims of namespace db that an answer has.
func free(a Answer) map[string]int64 {
	out := map[string]int64{}
	for claim, s := range a.Samples {
		out[claim.Name] = s.Bytes.Free
	}
	return out
}

// TestSources: the next source is asked where the one before has nothing to tell,
// and only then.
func TestSources(t *testing.T) {
	a := newAuthority(t)
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		why     string
		answers map[string]http.HandlerFunc
		want    map[string]int64
		asked   string
		fails   bool
	}{
		"metrics":             {"the first source is enough", map[string]http.HandlerFunc{"/metrics": says(exposition("data", 1000, 200)), "/stats/summary": says(summary)}, map[string]int64{"data": 200}, "/metrics", false},
		"no right":            {"who may not read metrics may read the summary", map[string]http.HandlerFunc{"/stats/summary": says(summary)}, map[string]int64{"data": 100}, "/metrics /stats/summary", false},
		"no series":           {"metrics without these series tell nothing", map[string]http.HandlerFunc{"/metrics": says("up 1\n"), "/stats/summary": says(summary)}, map[string]int64{"data": 100}, "/metrics /stats/summary", false},
		"nothing to tell":     {"that a node has no claims is an answer", map[string]http.HandlerFunc{"/metrics": says("up 1\n"), "/stats/summary": says(`{"node": {}, "pods": null}`)}, map[string]int64{}, "/metrics /stats/summary", false},
		"nothing":             {"neither answers", nil, map[string]int64{}, "/metrics /stats/summary", true},
		"broken series":       {"what cannot be read is not taken for half of it", map[string]http.HandlerFunc{"/metrics": says(exposition("a", 1, 1) + "kubelet_volume_stats_inodes{namespace=\"db\n")}, map[string]int64{}, "/metrics /stats/summary", true},
		"broken off":          {"a summary that ends early is none", map[string]http.HandlerFunc{"/stats/summary": says(summary[:len(summary)-4])}, map[string]int64{}, "/metrics /stats/summary", true},
		"endless":             {"no answer is read without a bound", map[string]http.HandlerFunc{"/metrics": endless}, map[string]int64{}, "/metrics /stats/summary", true},
		"one line, endlessly": {"nor is one line", map[string]http.HandlerFunc{"/metrics": says("kubelet_volume_stats_inodes{namespace=\"" + strings.Repeat("x", 2*maxLineBytes))}, map[string]int64{}, "/metrics /stats/summary", true},
	} {
		t.Run(name, func(t *testing.T) {
			k := startKubelet(t, a, tc.answers)
			r, _ := reader(t, a, func(o *Options) { o.Clock = clocktesting.NewFakePassiveClock(at) })
			answer := r.Read(t.Context(), []Node{k.node("a")})
			if diff := cmp.Diff(tc.want, free(answer)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			if asked := k.questions(); asked != tc.asked || (answer.Failed["a"] != nil) != tc.fails {
				t.Errorf("%s: asked %q, want %q; failed: %v, want %v", tc.why, asked, tc.asked, answer.Failed["a"], tc.fails)
			}
			for claim, s := range answer.Samples {
				if !s.At.Equal(at) {
					t.Errorf("%s was read at %v, want %v", claim, s.At, at)
				}
			}
		})
	}
}

// endless answers well formed lines for ever.
func endless(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := io.WriteString(w, strings.Repeat("some_other_series 1\n", 1000)); err != nil {
			return
		}
	}
}

// TestOneNodeOfSeveral: a node that is dead, slow, refuses or shows a certificate
// that is not its own costs its own claims their sample, and no one else's.
func TestOneNodeOfSeveral(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	good := map[string]http.HandlerFunc{"/metrics": says(exposition("good", 1000, 200))}
	dead := startKubelet(t, a, nil)
	dead.Close()
	hang := make(chan struct{})
	slow := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-req.Context().Done():
		case <-hang:
		}
	}})
	t.Cleanup(func() { close(hang) })
	for name, bad := range map[string]Node{
		"dead": dead.node("bad"), "slow": slow.node("bad"), "refuses": startKubelet(t, a, nil).node("bad"),
		"stranger": startKubelet(t, stranger, map[string]http.HandlerFunc{"/metrics": says(exposition("bad", 1000, 1))}).node("bad"),
		"nowhere":  {Name: "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, registry := reader(t, a)
			answer := r.Read(t.Context(), []Node{bad, startKubelet(t, a, good).node("good")})
			if diff := cmp.Diff(map[string]int64{"good": 200}, free(answer)); diff != "" {
				t.Errorf("samples (-want +got)\n%s", diff)
			}
			if answer.Failed["bad"] == nil || answer.Failed["good"] != nil {
				t.Errorf("failed nodes: %v, want bad alone", answer.Failed)
			}
			if n, err := testutil.GatherAndCount(registry, "holdfast_usage_source_errors_total"); n != 4 || err != nil {
				t.Errorf("%d series of errors, %v", n, err)
			}
			if n := testutil.ToFloat64(r.errors.WithLabelValues(sourceMetrics)); n != 1 {
				t.Errorf("%v errors of source metrics are counted, want 1", n)
			}
		})
	}
}

// TestTokenIsNotShown: without a certificate of the authority nobody learns the
// token, unless it is asked for.
func TestTokenIsNotShown(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	k := startKubelet(t, stranger, map[string]http.HandlerFunc{"/metrics": says(exposition("data", 1000, 200))})
	r, _ := reader(t, a)
	if answer := r.Read(t.Context(), []Node{k.node("a")}); answer.Failed["a"] == nil || k.questions() != "" {
		t.Errorf("a stranger was asked: %v", answer)
	}
	r, _ = reader(t, a, func(o *Options) { o.Kubelet.SkipVerify = true })
	if answer := r.Read(t.Context(), []Node{k.node("a")}); len(answer.Samples) != 1 {
		t.Errorf("with SkipVerify: %v", answer)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, stranger.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ = reader(t, a, func(o *Options) { o.Kubelet.CertificateAuthority = file })
	if answer := r.Read(t.Context(), []Node{k.node("a")}); len(answer.Samples) != 1 {
		t.Errorf("with the authority of kubelets: %v", answer)
	}
}

// TestRedirect: a kubelet that sends the manager elsewhere gets the token there
// neither for itself nor for others.
func TestRedirect(t *testing.T) {
	a := newAuthority(t)
	var seen atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen.Add(1)
		says(exposition("data", 1000, 200))(w, req)
	}))
	defer elsewhere.Close()
	away := func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, elsewhere.URL, http.StatusFound) }
	k := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": away, "/stats/summary": away})
	r, _ := reader(t, a)
	if answer := r.Read(t.Context(), []Node{k.node("a")}); answer.Failed["a"] == nil || len(answer.Samples) != 0 || seen.Load() != 0 {
		t.Errorf("a redirect was followed %d times: %v", seen.Load(), answer)
	}
}

// TestWhoIsBelieved: a node tells of the claims whose volumes it has, also where
// others say they have them, and Prometheus of those of the nodes that do not answer.
func TestWhoIsBelieved(t *testing.T) {
	a := newAuthority(t)
	has := func(n Node, claims ...string) Node {
		n.Has = func(c types.NamespacedName) bool { return c.Namespace == "db" && slices.Contains(claims, c.Name) }
		return n
	}
	here := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": says(exposition("moved", 1000, 200) + exposition("idle", 1000, 1))})
	before := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": says(exposition("moved", 1000, 1) + exposition("stays", 1000, 100))})
	dead := startKubelet(t, a, nil)
	vector := `{"status": "success", "data": {"result": [`
	for i, claim := range []string{"dead", "idle", "unsure", "unsure"} {
		if i > 0 {
			vector += ","
		}
		vector += fmt.Sprintf(`{"metric": {"__name__": "kubelet_volume_stats_capacity_bytes", "namespace": "db", "persistentvolumeclaim": %q}, "value": [1, "1000"]},
 {"metric": {"__name__": "kubelet_volume_stats_available_bytes", "namespace": "db", "persistentvolumeclaim": %q, "cluster": "%d"}, "value": [1, "%d"]}`, claim, claim, i, 10+i)
	}
	server := httptest.NewServer(says(vector + `]}}`))
	defer server.Close()
	p, err := NewPrometheus(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := reader(t, a, func(o *Options) { o.Prometheus = p })
	for range 5 { // the order of answers does not matter
		got := free(r.Read(t.Context(), []Node{has(here.node("here"), "moved"), has(before.node("before"), "stays"), has(dead.node("dead"), "dead", "unsure")}))
		if diff := cmp.Diff(map[string]int64{"moved": 200, "stays": 100, "dead": 10}, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// TestCertificateRotated: a kubelet that has a new certificate of the authority,
// and has dropped its connections for it, is asked as before.
func TestCertificateRotated(t *testing.T) {
	a := newAuthority(t)
	k := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": says(exposition("data", 1000, 200))})
	r, _ := reader(t, a)
	for i := range 4 {
		if answer := r.Read(t.Context(), []Node{k.node("a")}); len(answer.Samples) != 1 {
			t.Fatalf("read %d: %v", i, answer.Failed)
		}
		if i%2 == 0 {
			k.mu.Lock()
			k.cert = a.serving()
			k.mu.Unlock()
			k.CloseClientConnections()
		}
	}
}

// TestManyNodes: each is asked once, at most ten at a time, over a connection that
// is used again.
func TestManyNodes(t *testing.T) {
	a := newAuthority(t)
	var now, most, connections atomic.Int64
	var nodes []Node
	for i := range 40 {
		k := &kubelet{cert: a.serving(), answers: map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, req *http.Request) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-time.After(5 * time.Millisecond)
			now.Add(-1)
			says(exposition(fmt.Sprint("data-", i), 1000, 200))(w, req)
		}}}
		k.Server = httptest.NewUnstartedServer(k)
		k.TLS = &tls.Config{Certificates: []tls.Certificate{*k.cert}}
		k.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		}
		k.StartTLS()
		t.Cleanup(k.Close)
		nodes = append(nodes, k.node(fmt.Sprint("node-", i)))
	}
	r, _ := reader(t, a)
	for range 3 {
		if answer := r.Read(t.Context(), nodes); len(answer.Samples) != 40 || len(answer.Failed) != 0 {
			t.Fatalf("%d samples, failed: %v", len(answer.Samples), answer.Failed)
		}
	}
	if m := most.Load(); m > nodesAtOnce || m < 2 {
		t.Errorf("%d nodes were asked at once, want at most %d", m, nodesAtOnce)
	}
	if n := connections.Load(); n != 40 {
		t.Errorf("%d connections for 3 reads of 40 nodes, want 40", n)
	}
}

// TestPrometheus is asked about what nodes do not tell, and does not outvote them.
func TestPrometheus(t *testing.T) {
	vector := `{"status": "success", "data": {"resultType": "vector", "result": [
 {"metric": {"__name__": "kubelet_volume_stats_capacity_bytes", "namespace": "db", "persistentvolumeclaim": "data", "node": "a"}, "value": [1.5, "1000"]},
 {"metric": {"__name__": "kubelet_volume_stats_available_bytes", "namespace": "db", "persistentvolumeclaim": "data"}, "value": [1.5, "10"]},
 {"metric": {"__name__": "kubelet_volume_stats_available_bytes", "namespace": "db", "persistentvolumeclaim": "nan"}, "value": [1.5, "NaN"]},
 {"metric": {"__name__": "kubelet_volume_stats_capacity_bytes", "namespace": "db", "persistentvolumeclaim": "good"}, "value": [1.5, "1000"]},
 {"metric": {"__name__": "kubelet_volume_stats_available_bytes", "namespace": "db", "persistentvolumeclaim": "good"}, "value": [1.5, "1"]}]}}`
	a := newAuthority(t)
	good := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": says(exposition("good", 1000, 200))}).node("good")
	bad := startKubelet(t, a, nil).node("bad")
	for name, tc := range map[string]struct {
		why   string
		nodes []Node
		says  string
		want  map[string]int64
		asked int
		fails bool
	}{
		"all nodes answer": {"then it is not asked", []Node{good}, vector, map[string]int64{"good": 200}, 0, false},
		"one does not":     {"what the other node says counts for its claims", []Node{good, bad}, vector, map[string]int64{"good": 200, "data": 10}, 1, false},
		"an error":         {"it is told", []Node{good, bad}, `{"status": "error", "error": "too many samples"}`, map[string]int64{"good": 200}, 1, true},
		"no answer":        {"likewise", []Node{good, bad}, `<html>`, map[string]int64{"good": 200}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked++
				if req.URL.Path != "/prefix/api/v1/query" || req.FormValue("query") != query || req.Header.Get("Authorization") != "" {
					t.Errorf("asked %s with %v", req.URL, req.Header)
				}
				_, _ = io.WriteString(w, tc.says)
			}))
			defer server.Close()
			p, err := NewPrometheus(server.URL + "/prefix/")
			if err != nil {
				t.Fatal(err)
			}
			r, _ := reader(t, a, func(o *Options) { o.Prometheus = p })
			answer := r.Read(t.Context(), tc.nodes)
			got := free(answer)
			delete(got, "nan")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.why, diff)
			}
			if asked != tc.asked || (answer.Prometheus != nil) != tc.fails {
				t.Errorf("%s: asked %d times, want %d; failed: %v, want %v", tc.why, asked, tc.asked, answer.Prometheus, tc.fails)
			}
			if answer.Samples[types.NamespacedName{Namespace: "db", Name: "nan"}].Bytes.Known() {
				t.Error("what is not a number is taken for one")
			}
		})
	}
	for _, server := range []string{"prometheus:9090", "ftp://a", "http://", ":"} {
		if _, err := NewPrometheus(server); err == nil || !strings.Contains(err.Error(), server) {
			t.Errorf("%q: %v", server, err)
		}
	}
}

// TestReadEnds: who waits for an answer is let go when ctx ends.
func TestReadEnds(t *testing.T) {
	a := newAuthority(t)
	k := startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, _ := reader(t, a)
	begun := time.Now()
	if answer := r.Read(ctx, []Node{k.node("a"), k.node("b")}); len(answer.Failed) != 2 || time.Since(begun) > timeoutPerNode/2 {
		t.Errorf("%v after %v", answer, time.Since(begun))
	}
}

func TestNodeOf(t *testing.T) {
	n := &corev1.Node{}
	n.Name = "a"
	if got := NodeOf(n); got.Name != "a" || got.Address != "" {
		t.Errorf("a node without addresses: %v", got)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalIP, Address: "elsewhere/?"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	if got := NodeOf(n).Address; got != "[fd00::1]:10250" {
		t.Errorf("a node without a port: %s", got)
	}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10260
	if got := NodeOf(n).Address; got != "[fd00::1]:10260" {
		t.Errorf("a node with a port: %s", got)
	}
}

func TestReadLine(t *testing.T) {
	data := types.NamespacedName{Namespace: "db", Name: "data"}
	for line, want := range map[string]struct {
		series string
		claim  types.NamespacedName
		value  float64
		fails  bool
	}{
		`kubelet_volume_stats_inodes{namespace="db",persistentvolumeclaim="data"} 6.5536e+06`:             {inodes, data, 6553600, false},
		`kubelet_volume_stats_inodes{namespace="db",persistentvolumeclaim="data"} 5 1395066363000`:        {inodes, data, 5, false},
		`kubelet_volume_stats_inodes{ namespace = "db" , persistentvolumeclaim = "data" , } 5`:            {inodes, data, 5, false},
		`kubelet_volume_stats_inodes{note="a \"}\" b, {",persistentvolumeclaim="data",namespace="db"} +5`: {inodes, data, 5, false},
		`kubelet_volume_stats_inodes{} 5`:                   {inodes, types.NamespacedName{}, 5, false},
		`kubelet_volume_stats_inodes 5`:                     {fails: true},
		`kubelet_volume_stats_inodes{namespace="db"} five`:  {fails: true},
		`kubelet_volume_stats_inodes{namespace="db"}`:       {fails: true},
		`kubelet_volume_stats_inodes{namespace=db} 5`:       {fails: true},
		`kubelet_volume_stats_inodes{namespace="db" 5`:      {fails: true},
		`kubelet_volume_stats_inodes{namespace="db"} 5 6 7`: {fails: true},
	} {
		series, claim, value, err := readLine(line)
		if (err != nil) != want.fails || err == nil && (series != want.series || claim != want.claim || value != want.value) {
			t.Errorf("%s: %q %v %v, %v", line, series, claim, value, err)
		}
	}
}

func TestAmount(t *testing.T) {
	for a, want := range map[Amount]float64{{}: -1, {0, 0}: -1, {100, 101}: -1, {100, -1}: -1, {100, 0}: 100, {1000, 200}: 80} {
		got, known := a.UsedPercent()
		if known != (want >= 0) || known && got != want {
			t.Errorf("%+v: %v, %v; want %v", a, got, known, want)
		}
	}
}
