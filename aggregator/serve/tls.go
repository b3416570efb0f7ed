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
	// Cert and Key are the server's own. Required.
	Cert, Key string
	// ClientCA, when not empty, is who must have signed the certificates that clients must then show.
	ClientCA string
}

// TLSConfig reads the files and returns a configuration, TLS 1.3 and above, that reads them again when they change: a
// renewed certificate counts from the next connection on. Files that cannot be used then leave the old ones in place, and
// the log says so, once per change.
func TLSConfig(files Files, log *slog.Logger) (*tls.Config, error) {
	r := &reloader{files: files, log: log}
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
	files Files
	log   *slog.Logger

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
	pair, err := tls.LoadX509KeyPair(r.files.Cert, r.files.Key)
	if err != nil {
		return nil, fmt.Errorf("read the TLS certificate %s and key %s: %w", r.files.Cert, r.files.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if r.files.ClientCA == "" {
		return config, nil
	}
	roots, err := readRoots(r.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read the certificates that clients are checked against, %s: %w", r.files.ClientCA, err)
	}
	config.ClientCAs, config.ClientAuth = roots, tls.RequireAndVerifyClientCert
	return config, nil
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
