package usage

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"
)

// metered is a kubelet, an API server and a reader between them.
type metered struct {
	t         *testing.T
	authority *authority
	api       *api
	kubelet   *kubelet
	clock     *clocktesting.FakePassiveClock
	reader    *Reader
}

func newMetered(t *testing.T, change ...func(*Options)) *metered {
	t.Helper()
	a := newAuthority(t)
	m := &metered{t: t, authority: a, api: startAPI(t, a), clock: clocktesting.NewFakePassiveClock(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))}
	m.kubelet = startKubelet(t, a, map[string]http.HandlerFunc{"/metrics": says(exposition("data", 1000, 200))})
	m.reader, _ = reader(t, a, append(change, func(o *Options) { o.Config, o.Clock = m.api.config(a), m.clock })...)
	return m
}

// read steps the clock and reads. It wants a sample with the token of that number,
// 0: none; and so many errors of source token so far.
func (m *metered) read(step time.Duration, number string, failures float64) Answer {
	m.t.Helper()
	m.clock.SetTime(m.clock.Now().Add(step))
	before := len(m.kubelet.shown)
	answer := m.reader.Read(m.t.Context(), []Node{m.kubelet.node("a")})
	switch {
	case number == "0" && (len(m.kubelet.shown) != before || answer.Failed["a"] == nil):
		m.t.Errorf("%v later: the kubelet was asked without a token: %q, %v", step, m.kubelet.last(), answer)
	case number != "0" && (m.kubelet.last() != tokenOf+number || len(answer.Samples) != 1):
		m.t.Errorf("%v later: the kubelet was shown %q, want number %s: %v", step, m.kubelet.last(), number, answer)
	}
	if got := testutil.ToFloat64(m.reader.errors.WithLabelValues(sourceToken)); got != failures || (answer.Token != nil) && failures == 0 {
		m.t.Errorf("%v later: %v errors of tokens, want %v: %v", step, got, failures, answer.Token)
	}
	return answer
}

// TestTokenIsRenewed: one token serves for four fifths of its life, whatever the
// API server's clock says and how long it lets it live.
func TestTokenIsRenewed(t *testing.T) {
	m := newMetered(t)
	if answer := m.reader.Read(t.Context(), nil); answer.Token != nil || m.api.given != 0 {
		t.Errorf("with no node to ask %d tokens were requested: %v", m.api.given, answer)
	}
	m.read(0, "1", 0)
	m.read(8*time.Minute-time.Second, "1", 0)
	m.read(time.Second, "2", 0)
	m.api.set(func() { m.api.life = time.Hour })
	m.read(8*time.Minute, "3", 0)
	m.read(47*time.Minute, "3", 0)
	m.read(time.Minute, "4", 0)
}

// TestTokenIsRefused: without a new token the one of before is shown until it ends,
// and then none. It is said what is missing, and work goes on where it can.
func TestTokenIsRefused(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked++
		says(`{"status": "success", "data": {"result": [
 {"metric": {"__name__": "kubelet_volume_stats_capacity_bytes", "namespace": "db", "persistentvolumeclaim": "data"}, "value": [1, "1000"]},
 {"metric": {"__name__": "kubelet_volume_stats_available_bytes", "namespace": "db", "persistentvolumeclaim": "data"}, "value": [1, "10"]}]}}`)(w, req)
	}))
	defer server.Close()
	p, err := NewPrometheus(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	m := newMetered(t, func(o *Options) { o.Prometheus = p })
	m.read(0, "1", 0)
	m.api.set(func() { m.api.refuse = "the house forbids it" })
	m.read(8*time.Minute, "1", 1)
	m.read(2*time.Minute-time.Second, "1", 2)
	if asked != 0 {
		t.Error("Prometheus was asked though the kubelet answers")
	}
	answer := m.read(time.Second, "0", 3)
	if got := free(answer)["data"]; got != 10 || asked != 1 {
		t.Errorf("Prometheus was asked %d times: %v", asked, answer)
	}
	for _, want := range []string{"ServiceAccount holdfast-system/holdfast-usage", "serviceaccounts/token", "config/manager/rbac.yaml", "the house forbids it"} {
		if !strings.Contains(answer.Token.Error(), want) {
			t.Errorf("%q is not in: %v", want, answer.Token)
		}
	}
	if n := testutil.ToFloat64(m.reader.errors.WithLabelValues(sourceMetrics)); n != 0 {
		t.Errorf("%v errors of kubelets, which were not asked", n)
	}
	m.api.set(func() { m.api.refuse = "" })
	m.read(time.Minute, "2", 3)
}

// TestTokenIsNotKnown: a token that a kubelet does not know any more is renewed for
// the next read. A right that is missing is no reason.
func TestTokenIsNotKnown(t *testing.T) {
	m := newMetered(t)
	m.read(0, "1", 0)
	answers := func(code int) func(token, _ string) int {
		return func(token, _ string) int {
			if token == tokenOf+"1" {
				return code
			}
			return http.StatusOK
		}
	}
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		m.kubelet.mu.Lock()
		m.kubelet.admit = answers(code)
		m.kubelet.mu.Unlock()
		m.kubelet.questions()
		answer := m.reader.Read(t.Context(), []Node{m.kubelet.node("a")})
		if answer.Failed["a"] == nil || m.api.given != 1 || m.kubelet.last() != tokenOf+"1" {
			t.Errorf("status %d: %d tokens were requested, %q was shown: %v", code, m.api.given, m.kubelet.last(), answer)
		}
	}
	m.read(0, "2", 0)
	m.read(time.Minute, "2", 0)
}

// TestNoClientCertificate: what a kubeconfig has is not shown to kubelets either.
// They would take its user for who asks.
func TestNoClientCertificate(t *testing.T) {
	m := newMetered(t)
	key, cert := m.authority.make(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, m.authority)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := m.api.config(m.authority)
	cfg.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	cfg.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	m.reader, _ = reader(t, m.authority, func(o *Options) { o.Config, o.Clock = cfg, m.clock })
	m.read(0, "1", 0)
	if m.kubelet.certificates != 0 {
		t.Error("the kubelet was shown the manager's certificate")
	}
}
