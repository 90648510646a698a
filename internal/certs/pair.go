package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// How long certificates live, and the clock difference between machines that a
// new one allows for.
const (
	caLife      = 2 * 365 * 24 * time.Hour
	servingLife = 90 * 24 * time.Hour
	skew        = 5 * time.Minute
)

// pair is a certificate with its key, nil where the key is not kept.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// made is when a certificate was made, or first trusted.
func (p *pair) made() time.Time { return p.cert.NotBefore.Add(skew) }

// old says whether a certificate has lived two thirds of its life.
func (p *pair) old(now time.Time) bool {
	return now.After(p.made().Add(p.cert.NotAfter.Sub(p.made()) * 2 / 3))
}

// usable says whether a certificate is valid now.
func (p *pair) usable(now time.Time) bool {
	return p != nil && !now.Before(p.cert.NotBefore) && now.Before(p.cert.NotAfter)
}

// signs says whether a CA made a certificate.
func (p *pair) signs(other *pair) bool {
	return bytes.Equal(p.cert.RawSubject, other.cert.RawIssuer) && other.cert.CheckSignatureFrom(p.cert) == nil
}

// newCA makes a CA that signs itself.
func newCA(now time.Time) (*pair, error) {
	template, err := template(now, caLife)
	if err != nil {
		return nil, err
	}
	// Two CAs of one name could not be told apart by who verifies.
	template.Subject = pkix.Name{CommonName: "holdfast-webhook-ca-" + template.SerialNumber.Text(16)}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return sign(template, nil)
}

// issue makes a serving certificate for names.
func (p *pair) issue(now time.Time, names []string) (*pair, error) {
	if p.key == nil {
		return nil, fmt.Errorf("the key of %s is not kept", p.cert.Subject)
	}
	template, err := template(now, servingLife)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "holdfast-webhook"}
	template.DNSNames = names
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if template.NotAfter.After(p.cert.NotAfter) {
		template.NotAfter = p.cert.NotAfter
	}
	return sign(template, p)
}

func template(now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-skew), NotAfter: now.Add(life)}, nil
}

// sign makes a key and a certificate; by is nil for one that signs itself.
func sign(template *x509.Certificate, by *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if by == nil {
		by = &pair{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate %s: %w", template.Subject, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back certificate %s: %w", template.Subject, err)
	}
	return &pair{cert: cert, key: key}, nil
}

// tls is the pair as a server presents it.
func (p *pair) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func (p *pair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
}

func (p *pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("write the key of %s: %w", p.cert.Subject, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// parsePairs reads certificates in their order, and the keys that there are to
// them, in any order.
func parsePairs(certs, keys []byte) ([]*pair, error) {
	var pairs []*pair
	for block, rest := pem.Decode(certs); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		pairs = append(pairs, &pair{cert: cert})
	}
	for block, rest := pem.Decode(keys); block != nil; block, rest = pem.Decode(rest) {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a key: %w", err)
		}
		key, ok := parsed.(*ecdsa.PrivateKey)
		if !ok {
			return nil, errors.New("read a key: it is none of ours, which are ECDSA")
		}
		for _, p := range pairs {
			if key.PublicKey.Equal(p.cert.PublicKey) {
				p.key = key
			}
		}
	}
	return pairs, nil
}
