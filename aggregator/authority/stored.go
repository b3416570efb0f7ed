package authority

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// The names under which the parts are stored, all PEM.
const (
	currentCert, currentKey = "ca.crt", "ca.key"
	nextCert, nextKey       = "next.crt", "next.key"
	formerCerts             = "former.crt"
)

// encode is the material as it is stored.
func (m *material) encode() (map[string][]byte, error) {
	data := map[string][]byte{formerCerts: encodeCertificates(m.former)}
	if err := m.current.encode(data, currentCert, currentKey); err != nil {
		return nil, err
	}
	if m.next == nil {
		return data, nil
	}
	return data, m.next.encode(data, nextCert, nextKey)
}

func (p *pair) encode(data map[string][]byte, certificate, key string) error {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return fmt.Errorf("encode an authority's key: %w", err)
	}
	data[certificate] = encodeCertificates([]*x509.Certificate{p.certificate})
	data[key] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return nil
}

// decode reads stored material; nil where there is none. What is there and cannot be read is an error: it is not ours to
// overwrite.
func decode(data map[string][]byte) (*material, error) {
	if len(data[currentCert]) == 0 && len(data[currentKey]) == 0 {
		return nil, nil
	}
	m := &material{}
	var err error
	if m.current, err = decodePair(data, currentCert, currentKey); err != nil {
		return nil, err
	}
	if len(data[nextCert]) > 0 {
		if m.next, err = decodePair(data, nextCert, nextKey); err != nil {
			return nil, err
		}
	}
	m.former, err = decodeCertificates(data[formerCerts])
	return m, err
}

func decodePair(data map[string][]byte, certificate, key string) (*pair, error) {
	certificates, err := decodeCertificates(data[certificate])
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("the stored authority's %s holds %d certificates, not one", certificate, len(certificates))
	}
	block, _ := pem.Decode(data[key])
	if block == nil {
		return nil, fmt.Errorf("the stored authority's %s is no key", key)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the stored authority's %s: %w", key, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(certificates[0].PublicKey) {
		return nil, fmt.Errorf("the stored authority's %s is not the key of %s", key, certificate)
	}
	return &pair{certificate: certificates[0], key: private}, nil
}

func decodeCertificates(text []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a stored certificate: %w", err)
		}
		all = append(all, certificate)
	}
	return all, nil
}
