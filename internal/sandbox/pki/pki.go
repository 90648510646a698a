package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long the certificates hold. It begins an hour ago, for a clock
// that is set back a little between two starts.
const validity = 10 * 365 * 24 * time.Hour

// Authority signs certificates and writes them to its folder.
type Authority struct {
	dir  string
	now  time.Time
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Subject says whom a certificate is for.
type Subject struct {
	// File is the name of the pair of files, without suffix.
	File string
	// CommonName is the user and Organizations the groups that the API server
	// reads from a client's certificate.
	CommonName    string
	Organizations []string
	// IPs and DNS are the names of a server. Without any, the certificate is
	// good for clients alone.
	IPs []net.IP
	DNS []string
}

// NewAuthority makes ca.key and ca.crt in the folder.
func NewAuthority(dir, name string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder for certificates: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template, err := newTemplate(name, nil, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the authority's certificate: %w", err)
	}
	a := &Authority{dir: dir, now: now, cert: cert, key: key}
	return a, a.write("ca", der, key)
}

// OpenAuthority finds the authority that NewAuthority has made in the folder.
func OpenAuthority(dir string, now time.Time) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read the authority in %s: %w", dir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the authority in %s has a key of type %T, want one that this package has made", dir, pair.PrivateKey)
	}
	return &Authority{dir: dir, now: now, cert: pair.Leaf, key: key}, nil
}

// Issue signs a certificate with a fresh key and writes both, over those of an
// earlier one for the same file.
func (a *Authority) Issue(s Subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", s.File, err)
	}
	template, err := newTemplate(s.CommonName, s.Organizations, a.now)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.IPs)+len(s.DNS) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.IPAddresses, template.DNSNames = s.IPs, s.DNS
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", s.File, err)
	}
	return a.write(s.File, der, key)
}

// IssueTokenKeys writes sa.key, which signs service account tokens, and sa.pub,
// which checks them.
func (a *Authority) IssueTokenKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key for service account tokens: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key for service account tokens: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the key for service account tokens: %w", err)
	}
	if err := a.writePEM("sa.key", "EC PRIVATE KEY", private); err != nil {
		return err
	}
	return a.writePEM("sa.pub", "PUBLIC KEY", public)
}

func newTemplate(cn string, orgs []string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: cn, Organization: orgs},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
	}, nil
}

func (a *Authority) write(file string, der []byte, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key of %s: %w", file, err)
	}
	if err := a.writePEM(file+".key", "EC PRIVATE KEY", raw); err != nil {
		return err
	}
	return a.writePEM(file+".crt", "CERTIFICATE", der)
}

func (a *Authority) writePEM(file, kind string, der []byte) error {
	path := filepath.Join(a.dir, file)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
