package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// newSigner makes a certificate authority.
func newSigner(t *testing.T) *signer {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	return &signer{certificate: signed(t, template, template, key.Public(), key), key: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signed(t *testing.T, template, parent *x509.Certificate, public crypto.PublicKey, key any) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func (s *signer) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.certificate)
	return pool
}

// issue makes a certificate for servers at 127.0.0.1 and for clients.
func (s *signer) issue(t *testing.T, name string, groups ...string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	leaf := signed(t, template, s.certificate, key.Public(), s.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func TestCertificates(t *testing.T) {
	tests := map[string]struct {
		name   string
		groups []string
		kind   Kind
		node   string
		code   codes.Code
	}{
		"node":                       {"system:node:worker-1", []string{"system:nodes"}, Agent, "worker-1", codes.OK},
		"node without its group":     {"system:node:worker-1", nil, Unchecked, "", codes.PermissionDenied},
		"group without a node":       {"worker-1", []string{"system:nodes"}, Unchecked, "", codes.PermissionDenied},
		"node without a name":        {"system:node:", []string{"system:nodes"}, Unchecked, "", codes.PermissionDenied},
		"viewer":                     {"ada", []string{"offramp:viewers"}, Person, "", codes.OK},
		"operator":                   {"bob", []string{"staff", "offramp:operators"}, Person, "", codes.OK},
		"node and operator at once":  {"system:node:x", []string{"system:nodes", "offramp:operators"}, Unchecked, "", codes.PermissionDenied},
		"a group that looks like it": {"eve", []string{"offramp:operators2"}, Unchecked, "", codes.PermissionDenied},
		"cluster administrator":      {"admin", []string{"system:masters"}, Unchecked, "", codes.PermissionDenied},
	}
	authority := newSigner(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			leaf := authority.issue(t, tt.name, tt.groups...).Leaf
			state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, authority.certificate}}}
			ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
			caller, err := Certificates{}.Authenticate(ctx)
			if status.Code(err) != tt.code || caller.Kind != tt.kind || caller.Node != tt.node || caller.Name != tt.name {
				t.Errorf("got %+v, %v", caller, err)
			}
			if err == nil && !caller.Until.Equal(leaf.NotAfter) {
				t.Errorf("the proof ends at %v", caller.Until)
			}
		})
	}
}

// A certificate that was shown and not verified says nothing.
func TestUnverifiedCertificate(t *testing.T) {
	leaf := newSigner(t).issue(t, "system:node:worker-1", "system:nodes").Leaf
	for name, ctx := range map[string]context.Context{
		"shown only": peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{
			State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}}),
		"plaintext": peer.NewContext(t.Context(), &peer.Peer{}),
		"no peer":   t.Context(),
	} {
		if caller, err := (Certificates{}).Authenticate(ctx); status.Code(err) != codes.Unauthenticated || caller.Kind != Unchecked {
			t.Errorf("%s: %+v, %v", name, caller, err)
		}
	}
}

func TestCertificateRights(t *testing.T) {
	for _, tt := range []struct {
		operator bool
		what     Action
		want     codes.Code
	}{
		{false, Action{"get", "nodes", "a"}, codes.OK}, {false, Action{"watch", "nodes", ""}, codes.OK},
		{false, Action{"plan", "nodecleanups", "a"}, codes.PermissionDenied}, {false, Action{"apply", "nodecleanups", "a"}, codes.PermissionDenied},
		{true, Action{"apply", "nodecleanups", "a"}, codes.OK}, {true, Action{"list", "nodes", ""}, codes.OK},
	} {
		if err := permitGroup("x", tt.operator, tt.what); status.Code(err) != tt.want {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
