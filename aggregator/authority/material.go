package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const (
	// life is an authority's; it is replaced when a third of it is left.
	life = 365 * 24 * time.Hour
	// overlap is how long a new authority is published before it signs. Kubelets bring a changed ConfigMap to pods within
	// minutes; people's programs read it each time.
	overlap = 24 * time.Hour
	// backdated is for clocks that are behind.
	backdated = 10 * time.Minute
)

// material is what replicas share.
type material struct {
	current *pair
	// next is published and does not sign yet; nil most of the time.
	next *pair
	// former signed before and are still trusted.
	former []*x509.Certificate
}

// pair is an authority's certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// advance does what is due at a time and says whether anything was. m is nil where there is no material yet; it is not
// changed.
func advance(m *material, now time.Time) (*material, bool, error) {
	if m == nil {
		first, err := newPair(now)
		return &material{current: first}, true, err
	}
	moved := *m
	changed := false
	if m.next == nil && now.After(m.current.certificate.NotAfter.Add(-life/3)) {
		next, err := newPair(now)
		if err != nil {
			return nil, false, err
		}
		moved.next, changed = next, true
	}
	if next := moved.next; next != nil && (now.After(next.certificate.NotBefore.Add(backdated+overlap)) || now.After(m.current.certificate.NotAfter)) {
		moved.former = append(append([]*x509.Certificate{}, m.former...), m.current.certificate)
		moved.current, moved.next, changed = next, nil, true
	}
	kept := trusted(moved.former, now)
	changed = changed || len(kept) != len(moved.former)
	moved.former = kept
	return &moved, changed, nil
}

// trusted leaves out what has expired.
func trusted(certificates []*x509.Certificate, now time.Time) (kept []*x509.Certificate) {
	for _, certificate := range certificates {
		if !now.After(certificate.NotAfter) {
			kept = append(kept, certificate)
		}
	}
	return kept
}

func newPair(now time.Time) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make an authority's key: %w", err)
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "Offramp authority " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	certificate, err := sign(template, &pair{certificate: template, key: key}, &key.PublicKey)
	return &pair{certificate: certificate, key: key}, err
}

func sign(template *x509.Certificate, by *pair, key *ecdsa.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, key, by.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// bundle is what others trust, PEM: the authority that signs first.
func (m *material) bundle() []byte {
	all := []*x509.Certificate{m.current.certificate}
	if m.next != nil {
		all = append(all, m.next.certificate)
	}
	return encodeCertificates(append(all, m.former...))
}

func encodeCertificates(all []*x509.Certificate) (text []byte) {
	for _, certificate := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})...)
	}
	return text
}
