package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"
)

// renew makes a server certificate unless there is a good one.
func (a *Authority) renew(by *pair) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.config.Now()
	if a.server != nil && bytes.Equal(a.signer.Raw, by.certificate.Raw) && now.Before(a.server.Leaf.NotAfter.Add(-serverLife/3)) {
		return nil
	}
	server, err := issue(by, a.config.Names, now)
	if err != nil {
		return err
	}
	a.signer, a.server = by.certificate, server
	a.config.Log.Info("a new server certificate", "names", a.config.Names, "expires", server.Leaf.NotAfter)
	return nil
}

func issue(by *pair, names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the server's key: %w", err)
	}
	until := now.Add(serverLife)
	if until.After(by.certificate.NotAfter) {
		until = by.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "offramp-aggregator"},
		NotBefore: now.Add(-backdated), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	leaf, err := sign(template, by, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}
