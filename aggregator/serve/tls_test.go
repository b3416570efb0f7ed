package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// writePair makes a self-signed certificate for 127.0.0.1 whose serial number tells it from others.
func writePair(t testing.TB, dir string, serial int64) Files {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "aggregator"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	write(t, files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), serial)
	write(t, files.Key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), serial)
	return files
}

// write gives each version its own time, which a coarse file system clock might not.
func write(t testing.TB, path string, content []byte, version int64) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Duration(version) * time.Second)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// serial shakes hands and tells which certificate the server shows.
func serial(t *testing.T, address string, config *tls.Config) (int64, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func anyServer() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	files := writePair(t, dir, 1)
	var logged bytes.Buffer
	config, err := TLSConfig(files, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t, short(), func(c *Config) { c.TLS = config })
	expect := func(when string, want int64) {
		t.Helper()
		if got, err := serial(t, l.address, anyServer()); err != nil || got != want {
			t.Errorf("%s: certificate %d, %v; want %d", when, got, err, want)
		}
	}
	expect("at first", 1)
	writePair(t, dir, 2)
	expect("renewed", 2)
	write(t, files.Cert, []byte("half a cert"), 3)
	expect("spoiled", 2)
	expect("spoiled, again", 2)
	if n := strings.Count(logged.String(), "cannot be used"); n != 1 {
		t.Errorf("the spoiled file was logged %d times", n)
	}
	writePair(t, dir, 4)
	expect("repaired", 4)
	old := anyServer()
	old.MaxVersion = tls.VersionTLS12
	if _, err := serial(t, l.address, old); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

func TestCallsOverTLS(t *testing.T) {
	files := writePair(t, t.TempDir(), 1)
	config, err := TLSConfig(files, quiet())
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t, short(), func(c *Config) { c.TLS = config })
	roots, err := readRoots(files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := v1.NewFleetServiceClient(conn).GetReadiness(t.Context(), &v1.GetReadinessRequest{}); err != nil {
		t.Error(err)
	}
}

func TestClientsMustShowACertificate(t *testing.T) {
	server, client := writePair(t, t.TempDir(), 1), writePair(t, t.TempDir(), 2)
	server.ClientCA = client.Cert
	config, err := TLSConfig(server, quiet())
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t, short(), func(c *Config) { c.TLS = config })
	ask := func(config *tls.Config) error {
		conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		_, err = v1.NewFleetServiceClient(conn).GetReadiness(ctx, &v1.GetReadinessRequest{})
		return err
	}
	if err := ask(anyServer()); err == nil {
		t.Error("a client without a certificate was served")
	}
	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	withPair := anyServer()
	withPair.Certificates = []tls.Certificate{pair}
	if err := ask(withPair); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
}

func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	good := writePair(t, t.TempDir(), 1)
	for name, files := range map[string]Files{
		"no certificate": {Cert: "/nowhere", Key: good.Key},
		"no key":         {Cert: good.Cert, Key: "/nowhere"},
		"no CA":          {Cert: good.Cert, Key: good.Key, ClientCA: "/nowhere"},
		"no PEM in CA":   {Cert: good.Cert, Key: good.Key, ClientCA: good.Key},
	} {
		if _, err := TLSConfig(files, quiet()); err == nil || !strings.Contains(err.Error(), "/") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
