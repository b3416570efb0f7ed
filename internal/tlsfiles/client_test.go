package tlsfiles

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
)

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		client Client
		want   string
	}{
		"nothing":            {Client{}, ""},
		"ca":                 {Client{CAFile: "x"}, ""},
		"both of a pair":     {Client{CertFile: "x", KeyFile: "y"}, ""},
		"plaintext":          {Client{InsecurePlaintext: true}, ""},
		"half a pair":        {Client{CertFile: "x"}, "--key-file"},
		"other half":         {Client{KeyFile: "x"}, "--cert-file"},
		"plaintext and ca":   {Client{InsecurePlaintext: true, CAFile: "x"}, "--insecure-plaintext"},
		"plaintext and name": {Client{InsecurePlaintext: true, ServerName: "x"}, "--insecure-plaintext"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, tt.client.Check(), tt.want) })
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestConfigSaysWhichFileIsWrong(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, client := range map[string]Client{
		"/nowhere/ca.pem":      {CAFile: "/nowhere/ca.pem"},
		junk:                   {CAFile: junk},
		"--cert-file":          {CertFile: junk, KeyFile: junk},
		"plaintext":            {InsecurePlaintext: true},
		"--key-file":           {CertFile: junk},
		"client certificate (": {CertFile: "/nowhere/c.pem", KeyFile: "/nowhere/k.pem"},
	} {
		_, err := client.Config()
		wantError(t, err, want)
		if !client.InsecurePlaintext {
			_, err = client.Credentials()
			wantError(t, err, want)
		}
	}
}

func TestConfigWantsTLS13(t *testing.T) {
	config, err := Client{ServerName: "aggregator.example"}.Config()
	if err != nil {
		t.Fatal(err)
	}
	if config.MinVersion != tls.VersionTLS13 || config.InsecureSkipVerify || config.RootCAs != nil || config.ServerName != "aggregator.example" {
		t.Errorf("got %+v", config)
	}
}

func handshake(t *testing.T, client Client, address string) error {
	t.Helper()
	creds, err := client.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	return shake(t, creds.Clone(), address)
}

func TestHandshakes(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	pair := func(a *authority, name string) tls.Certificate {
		certFile, keyFile := a.issue(t, name)
		certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	byIP := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair(ours, "127.0.0.1")}}
	byName := &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair(ours, "aggregator.example")}}
	old := byIP.Clone()
	old.MaxVersion = tls.VersionTLS12
	mutual := byIP.Clone()
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, ours.pool()
	certFile, keyFile := ours.issue(t, "worker-1")

	tests := map[string]struct {
		server *tls.Config
		client Client
		want   string
	}{
		"trusted":             {byIP, Client{CAFile: ours.file}, ""},
		"another authority":   {byIP, Client{CAFile: theirs.file}, "unknown authority"},
		"system roots":        {byIP, Client{}, "unknown authority"},
		"another name":        {byName, Client{CAFile: ours.file}, "127.0.0.1"},
		"name given":          {byName, Client{CAFile: ours.file, ServerName: "aggregator.example"}, ""},
		"TLS 1.2":             {old, Client{CAFile: ours.file}, "protocol version"},
		"client certificate":  {mutual, Client{CAFile: ours.file, CertFile: certFile, KeyFile: keyFile}, ""},
		"certificate missing": {mutual, Client{CAFile: ours.file}, "certificate required"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, handshake(t, tt.client, serve(t, tt.server)), tt.want) })
	}
}

// A renewed CA file counts from the next connection on, without new credentials.
func TestRenewedFilesAreTakenUp(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	certFile, keyFile := second.issue(t, "127.0.0.1")
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{certificate}})
	creds, err := Client{CAFile: first.file}.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, shake(t, creds, address), "unknown authority")
	renewed, err := os.ReadFile(second.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.file, renewed, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, shake(t, creds, address), "")
	if err := os.Remove(first.file); err != nil {
		t.Fatal(err)
	}
	wantError(t, shake(t, creds, address), first.file)
}

func TestPlaintextCredentialsSayTheyAreInsecure(t *testing.T) {
	creds, err := Client{InsecurePlaintext: true}.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	if got := creds.Info().SecurityProtocol; got != "insecure" {
		t.Errorf("got %q", got)
	}
}

func TestAddFlags(t *testing.T) {
	var client Client
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	client.AddFlags(flags)
	err := flags.Parse([]string{"--ca-file=a", "--server-name=b", "--cert-file=c", "--key-file=d", "--insecure-plaintext"})
	if want := (Client{"a", "b", "c", "d", true}); err != nil || client != want {
		t.Errorf("got %+v, %v", client, err)
	}
}

// shake connects and shakes hands; one byte is read, as TLS 1.3 tells of a refused client certificate only then.
func shake(t *testing.T, creds credentials.TransportCredentials, address string) error {
	t.Helper()
	raw, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	conn, _, err := creds.ClientHandshake(t.Context(), address, raw)
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return errors.Join(err, conn.Close())
}
