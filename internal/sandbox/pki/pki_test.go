package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("%s holds no PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestIssue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	ca, err := NewAuthority(dir, "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	server := Subject{File: "server", CommonName: "s", IPs: []net.IP{net.ParseIP("10.0.0.1")}, DNS: []string{"server.test"}}
	client := Subject{File: "client", CommonName: "system:node:n", Organizations: []string{"system:nodes"}}
	for _, s := range []Subject{server, client} {
		if err := ca.Issue(s); err != nil {
			t.Fatal(err)
		}
		if _, err := tls.LoadX509KeyPair(filepath.Join(dir, s.File+".crt"), filepath.Join(dir, s.File+".key")); err != nil {
			t.Errorf("key and certificate of %s do not match: %v", s.File, err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, filepath.Join(dir, "ca.crt")))
	for name, tc := range map[string]struct {
		why, file, host string
		usage           x509.ExtKeyUsage
		ok              bool
	}{
		"by address":         {"kubelets are called by address", "server", "10.0.0.1", x509.ExtKeyUsageServerAuth, true},
		"by name":            {"servers have names too", "server", "server.test", x509.ExtKeyUsageServerAuth, true},
		"other name":         {"and no others", "server", "other.test", x509.ExtKeyUsageServerAuth, false},
		"client":             {"clients can log in", "client", "", x509.ExtKeyUsageClientAuth, true},
		"client as a server": {"a client's certificate does not make a server", "client", "", x509.ExtKeyUsageServerAuth, false},
	} {
		t.Run(name, func(t *testing.T) {
			cert := certificate(t, filepath.Join(dir, tc.file+".crt"))
			_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: tc.host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{tc.usage}})
			if (err == nil) != tc.ok {
				t.Errorf("%s: %v", tc.why, err)
			}
		})
	}
	if got := certificate(t, filepath.Join(dir, "client.crt")).Subject; got.CommonName != "system:node:n" || len(got.Organization) != 1 || got.Organization[0] != "system:nodes" {
		t.Errorf("user and groups are %v", got)
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the authority's key is readable by others: %v, %v", info.Mode(), err)
	}
}

// A certificate is renewed by another process than the one that made the authority:
// whoever trusts the authority trusts both, the old and the new.
func TestRenew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	ca, err := NewAuthority(dir, "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	server := Subject{File: "server", CommonName: "s", DNS: []string{"server.test"}}
	if err := ca.Issue(server); err != nil {
		t.Fatal(err)
	}
	first := certificate(t, filepath.Join(dir, "server.crt"))

	again, err := OpenAuthority(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Issue(server); err != nil {
		t.Fatal(err)
	}
	second := certificate(t, filepath.Join(dir, "server.crt"))
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")); err != nil {
		t.Errorf("the renewed key and certificate do not match: %v", err)
	}
	if first.SerialNumber.Cmp(second.SerialNumber) == 0 {
		t.Error("the renewed certificate is the old one")
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, filepath.Join(dir, "ca.crt")))
	for _, c := range []*x509.Certificate{first, second} {
		if _, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: "server.test", CurrentTime: now}); err != nil {
			t.Errorf("certificate %d: %v", c.SerialNumber, err)
		}
	}
	if _, err := OpenAuthority(t.TempDir(), now); err == nil {
		t.Error("an authority was found in an empty folder")
	}
}

func TestTokenKeys(t *testing.T) {
	dir := t.TempDir()
	ca, err := NewAuthority(dir, "ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.IssueTokenKeys(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "sa.pub"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "PUBLIC KEY" {
		t.Fatalf("sa.pub holds %q", raw)
	}
	if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		t.Error(err)
	}
}
