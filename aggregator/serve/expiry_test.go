package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func lasting(t *testing.T, until time.Time) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestCertificateExpiry(t *testing.T) {
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	shown := lasting(t, until)
	inner := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*shown}}
	stale := *lasting(t, until.Add(-time.Minute))
	for name, config := range map[string]*tls.Config{
		"plain":     inner,
		"asked for": {MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown, nil }},
		"reloaded": {MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{stale},
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return inner, nil }},
	} {
		if got := CertificateExpiry(config); !got.Equal(until) {
			t.Errorf("%s: %s, want %s", name, got, until)
		}
	}
	if !CertificateExpiry(nil).IsZero() || !CertificateExpiry(&tls.Config{MinVersion: tls.VersionTLS13}).IsZero() {
		t.Error("no certificate expires")
	}
}

// Two days before the end somebody is told, and not before.
func TestWarnOfExpiry(t *testing.T) {
	for after, want := range map[time.Duration]bool{23 * time.Hour: false, 26 * time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*lasting(t, time.Now().Add(72*time.Hour))}}
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			WarnOfExpiry(ctx, config, slog.New(slog.NewTextHandler(&out, nil)))
			if told := strings.Contains(out.String(), "expires soon"); told != want {
				t.Errorf("after %s of 72 h somebody was told: %t", after, told)
			}
		})
	}
}
