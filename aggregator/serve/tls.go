package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are the PEM files of the server's side of TLS.
type Files struct {
	// Cert and Key are the server's own. Required, unless the certificate comes from elsewhere.
	Cert, Key string
	// ClientCA, when not empty, is who must have signed the certificates that clients show.
	ClientCA string
	// ClientCertOptional lets clients connect that show none, since they have other means to say who they are.
	ClientCertOptional bool
}

// TLSConfig reads the files and returns a configuration, TLS 1.3 and above, that reads them again when they change: a
// renewed certificate counts from the next connection on. Files that cannot be used then leave the old ones in place, and
// the log says so, once per change.
func TLSConfig(files Files, log *slog.Logger) (*tls.Config, error) {
	return startReloading(&reloader{files: files, log: log})
}

// TLSConfigWith is TLSConfig with a server certificate that does not come from files: certificate is asked at every
// handshake.
func TLSConfigWith(certificate func() (*tls.Certificate, error), files Files, log *slog.Logger) (*tls.Config, error) {
	return startReloading(&reloader{files: files, log: log, certificate: certificate})
}

func startReloading(r *reloader) (*tls.Config, error) {
	r.stamp = r.look()
	current, err := r.read()
	if err != nil {
		return nil, err
	}
	r.current = current
	outer := current.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.config(), nil }
	return outer, nil
}

// stamp tells whether a file is another than before: its time and size, also of a renewed symbolic link's target.
type stamp [3]struct {
	modified time.Time
	size     int64
}

type reloader struct {
	files       Files
	log         *slog.Logger
	certificate func() (*tls.Certificate, error) // nil where it is in files

	mu      sync.Mutex
	stamp   stamp
	current *tls.Config
}

func (r *reloader) config() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.look()
	if now == r.stamp {
		return r.current
	}
	r.stamp = now
	changed, err := r.read()
	if err != nil {
		r.log.Error("the TLS files changed and cannot be used; the ones before stay", "error", err)
		return r.current
	}
	r.log.Info("the TLS files changed and were read again")
	r.current = changed
	return r.current
}

func (r *reloader) look() (seen stamp) {
	for i, path := range []string{r.files.Cert, r.files.Key, r.files.ClientCA} {
		if info, err := os.Stat(path); err == nil {
			seen[i].modified, seen[i].size = info.ModTime(), info.Size()
		}
	}
	return seen
}

func (r *reloader) read() (*tls.Config, error) {
	// Agents keep one connection and resume none: tickets would be made and sent for nothing.
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true}
	if err := r.identify(config); err != nil {
		return nil, err
	}
	if r.files.ClientCA == "" {
		return config, nil
	}
	roots, err := readRoots(r.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read the certificates that clients are checked against, %s: %w", r.files.ClientCA, err)
	}
	config.ClientCAs, config.ClientAuth = roots, tls.RequireAndVerifyClientCert
	if r.files.ClientCertOptional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}

// identify gives the configuration the server's certificate.
func (r *reloader) identify(config *tls.Config) error {
	if r.certificate != nil {
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.certificate() }
		return nil
	}
	pair, err := tls.LoadX509KeyPair(r.files.Cert, r.files.Key)
	if err != nil {
		return fmt.Errorf("read the TLS certificate %s and key %s: %w", r.files.Cert, r.files.Key, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

func readRoots(path string) (*x509.CertPool, error) {
	//nolint:gosec // whoever starts the aggregator names the file
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("there is no certificate in it")
	}
	return roots, nil
}
