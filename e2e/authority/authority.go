// Package authority makes a throw-away certificate authority for tests and the demo, as files that the programs read.
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
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// validity covers clocks that are some days off, which tests set on purpose.
const validity = 7 * 24 * time.Hour

// Files are the paths of what Make wrote.
type Files struct {
	// CA is the certificate that clients trust.
	CA string
	// ServerCert and ServerKey are the server's certificate, signed by CA, and its key.
	ServerCert, ServerKey string
}

// Make makes an authority and a server certificate for the given IP addresses and writes them into dir.
func Make(dir string, addresses ...netip.Addr) (Files, error) {
	files := Files{
		CA:         filepath.Join(dir, "ca.pem"),
		ServerCert: filepath.Join(dir, "server.pem"),
		ServerKey:  filepath.Join(dir, "server-key.pem"),
	}
	ca, caKey, err := sign(files.CA, certificateOf("offramp test CA", true, nil), nil, nil)
	if err != nil {
		return Files{}, err
	}
	_, key, err := sign(files.ServerCert, certificateOf("offramp-aggregator", false, addresses), ca, caKey)
	if err != nil {
		return Files{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Files{}, fmt.Errorf("encoding the server's key: %w", err)
	}
	return files, write(files.ServerKey, "PRIVATE KEY", encoded)
}

func certificateOf(name string, isCA bool, addresses []netip.Addr) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-validity),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if isCA {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, address.AsSlice())
	}
	return template
}

// sign makes a key and a certificate for it, signed by the parent, or by itself where there is none.
func sign(path string, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing %s: %w", template.Subject.CommonName, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return certificate, key, write(path, "CERTIFICATE", der)
}

func write(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	return nil
}
