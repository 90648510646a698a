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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// With --webhook-cert-dir the manager serves the certificate that it finds
// there, and the next one once kubelet has put it in its place, as it does when
// cert-manager has renewed it.
func TestCertificatesOfAFolderAreServed(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 1)
	ctx, stop := context.WithCancel(t.Context())
	address := freeAddress(t)
	var o options
	o.register(pflag.NewFlagSet("", pflag.ContinueOnError)) // as no flag says otherwise
	o.namespace, o.kubeconfig, o.webhookAddress, o.certDir = "default", kubeconfig(t, testenv.APIServer(t)), address, dir
	o.metricsAddress, o.healthAddress, o.leaderElection = "", "", false
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	served(t, address, 1, ended)
	mount(t, dir, 2)
	served(t, address, 2, ended)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
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
