package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// signer is a certificate authority whose files an aggregator reads.
type signer struct {
	t           *testing.T
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	s.certificate = template
	pair := s.sign(template)
	s.certificate, s.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	s.pool.AddCert(s.certificate)
	s.write("ca.pem", "CERTIFICATE", s.certificate.Raw)
	return s
}

// sign makes a certificate, by itself for the first.
func (s *signer) sign(template *x509.Certificate) tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	by := s.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, key.Public(), by)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (s *signer) issue(name string, groups ...string) tls.Certificate {
	return s.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
}

func (s *signer) write(name, kind string, der []byte) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// serveMTLS runs an aggregator outside of any cluster until the test ends and returns its address.
func (s *signer) serveMTLS(more ...string) (string, *output) {
	s.t.Helper()
	server := s.issue("server")
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		s.t.Fatal(err)
	}
	args := append([]string{"run", "--listen", "127.0.0.1:0", "--log-format", "json", "--client-ca-file", filepath.Join(s.dir, "ca.pem"),
		"--tls-cert-file", s.write("server.pem", "CERTIFICATE", server.Certificate[0]), "--tls-key-file", s.write("server-key.pem", "PRIVATE KEY", key)}, more...)
	stdout, stderr := &output{}, &output{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, noVariables, stdout, stderr) }()
	s.t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			s.t.Errorf("exit code %d: %s", code, stderr.String())
		}
	})
	return waitForAddress(s.t, stderr), stderr
}

func (s *signer) dial(address string, certificates ...tls.Certificate) *grpc.ClientConn {
	s.t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.pool, Certificates: certificates}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func says(ctx context.Context, conn *grpc.ClientConn, node string) codes.Code {
	stream, err := v1.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		return status.Code(err)
	}
	_ = stream.Send(&v1.ConnectRequest{Message: &v1.ConnectRequest_Hello{Hello: &v1.Hello{Node: node, AgentVersion: "v", Instance: "i"}}})
	_, err = stream.Recv()
	return status.Code(err)
}

func lists(ctx context.Context, conn *grpc.ClientConn) codes.Code {
	_, err := v1.NewFleetServiceClient(conn).ListNodes(ctx, &v1.ListNodesRequest{})
	return status.Code(err)
}

func plans(ctx context.Context, conn *grpc.ClientConn) codes.Code {
	stream, err := v1.NewCleanupServiceClient(conn).Plan(ctx, &v1.PlanRequest{Node: "node-a", OrderId: "0123456789abcdef0", Target: v1.Target_TARGET_NONE})
	if err != nil {
		return status.Code(err)
	}
	_, err = stream.Recv()
	return status.Code(err)
}

// Outside of Kubernetes client certificates say who calls, and an aggregator with --client-ca-file asks for them unbidden.
func TestMutualTLS(t *testing.T) {
	s := newSigner(t)
	address, _ := s.serveMTLS()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	node := s.dial(address, s.issue("system:node:node-a", "system:nodes"))
	viewer, operator := s.dial(address, s.issue("ada", "offramp:viewers")), s.dial(address, s.issue("bob", "offramp:operators"))
	stranger := newSigner(t)
	for name, tt := range map[string]struct{ got, want codes.Code }{
		"a node for itself":      {says(ctx, node, "node-a"), codes.OK},
		"a node for another":     {says(ctx, node, "node-b"), codes.PermissionDenied},
		"a node asks":            {lists(ctx, node), codes.PermissionDenied},
		"a viewer asks":          {lists(ctx, viewer), codes.OK},
		"a viewer orders":        {plans(ctx, viewer), codes.PermissionDenied},
		"a viewer reports":       {says(ctx, viewer, "node-a"), codes.PermissionDenied},
		"an operator asks":       {lists(ctx, operator), codes.OK},
		"an operator orders":     {plans(ctx, operator), codes.Unavailable},
		"nobody asks":            {lists(ctx, s.dial(address)), codes.Unavailable},
		"a stranger's signature": {lists(ctx, s.dial(address, stranger.issue("ada", "offramp:viewers"))), codes.Unavailable},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
}
