package main

import (
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// serveTLS runs the fake under the certificate that Go's own test server uses: for 127.0.0.1 and example.com, signed by
// itself. It returns the address and a file with that certificate.
func serveTLS(t *testing.T, fleet *fakeFleet) (address, caFile string) {
	t.Helper()
	donor := httptest.NewTLSServer(nil)
	defer donor.Close()
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: donor.Certificate().Raw})
	if err := os.WriteFile(caFile, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: donor.TLS.Certificates}
	return serve(t, fleet, grpc.Creds(credentials.NewTLS(config))), caFile
}

func TestTLS(t *testing.T) {
	address, caFile := serveTLS(t, &fakeFleet{readiness: fleetOf(1, 1, 0, 0)})
	base := []string{"status", "--aggregator", address}
	with := func(args ...string) result { return call(t.Context(), nil, append(base, args...)...) }
	with("--ca-file", caFile).want(t, 0, "Nodes: 1", "")
	with("--ca-file", caFile, "--server-name", "example.com").want(t, 0, "Nodes: 1", "")
	with("--ca-file", caFile, "--server-name", "other.example").want(t, 1, "", "certificate is for another name")
	with().want(t, 1, "", "name the CA with --ca-file")
	with("--insecure-plaintext").want(t, 1, "", "without --insecure-plaintext TLS is used")
}
