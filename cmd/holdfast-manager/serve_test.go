//go:build envtest

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestServes starts the manager as an install does, before an API server whose
// lists are slow: it lives and is not ready. Then they are answered: it is ready,
// leads, shows its metrics to nobody without a token, and serves the certificate
// of --webhook-cert-dir, and the next one once kubelet has put it in its place, as
// it does when cert-manager has renewed it. Told to stop, it leaves the lead to the
// next replica.
func TestServes(t *testing.T) {
	cfg := testenv.APIServer(t)
	dir := t.TempDir()
	mount(t, dir, 1)
	ctx, stop := context.WithCancel(t.Context())
	address := freeAddress(t)
	slow, answer := slowly(t, cfg)
	var o options
	o.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // as no flag says otherwise
	o.namespace, o.kubeconfig, o.webhookAddress, o.certDir = "default", kubeconfig(t, slow), address, dir
	o.metricsAddress, o.healthAddress = freeAddress(t), freeAddress(t)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	served(t, address, 1, ended)
	answers(t, "http://"+o.healthAddress+"/healthz", http.StatusOK)
	answers(t, "http://"+o.healthAddress+"/readyz", http.StatusInternalServerError)
	answer()
	answers(t, "http://"+o.healthAddress+"/readyz", http.StatusOK)
	answers(t, "https://"+o.metricsAddress+"/metrics", http.StatusUnauthorized)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leads(t, c, true)
	mount(t, dir, 2)
	served(t, address, 2, ended)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
	leads(t, c, false)
}

// slowly is a way to an API server that answers no list and no watch before it is
// told to.
func slowly(t *testing.T, cfg *rest.Config) (slow *rest.Config, answer func()) {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	if to.Host == "" {
		to = &url.URL{Scheme: "https", Host: cfg.Host}
	}
	told := make(chan struct{})
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Has("resourceVersion") || q.Has("watch") || q.Has("limit") {
			select {
			case <-told:
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return &rest.Config{Host: s.URL}, func() { close(told) }
}

// answers waits until an address answers a status to who shows no token.
func answers(t *testing.T, address string, want int) {
	t.Helper()
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	err := testenv.Eventually(t.Context(), time.Minute, fmt.Sprintf("%s answers %d", address, want), func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return "", err
		}
		res, err := c.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		if res.StatusCode != want {
			return res.Status, nil
		}
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// leads waits until somebody holds the lease of the leading replica, or nobody.
func leads(t *testing.T, c client.Client, somebody bool) {
	t.Helper()
	err := testenv.Eventually(t.Context(), time.Minute, fmt.Sprintf("some replica leads: %v", somebody), func(ctx context.Context) (string, error) {
		var lease coordinationv1.Lease
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: leaseName}, &lease); err != nil {
			return "", err
		}
		if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); (holder != "") != somebody {
			return fmt.Sprintf("the holder is %q", holder), nil
		}
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// served waits until the certificate with that serial number is served.
func served(t *testing.T, address string, serial int64, ended <-chan error) {
	t.Helper()
	err := testenv.Eventually(t.Context(), time.Minute, fmt.Sprintf("certificate %d served", serial), func(context.Context) (string, error) {
		select {
		case err := <-ended:
			t.Fatalf("the manager ended: %v", err)
		default:
		}
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != serial {
			return fmt.Sprintf("certificate %d", got), nil
		}
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mount puts a certificate with that serial number into a folder the way kubelet
// does it with a Secret: a link is moved from the old version's folder to the new.
func mount(t *testing.T, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"holdfast-webhook.default.svc"}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	version := fmt.Sprintf("..%d", serial)
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, version, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig writes how to reach the API server into a file.
func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
