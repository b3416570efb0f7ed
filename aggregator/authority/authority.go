package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// serverLife is the life of the server's certificate; it is replaced when a third of it is left.
	serverLife = 7 * 24 * time.Hour
	// every is how often the store is looked at: another replica may have moved on.
	every = time.Minute
	// attempts bounds how often one look is begun anew because another replica was faster.
	attempts = 5
	// warnBefore is when an authority that nobody replaces is complained about.
	warnBefore = life / 4
)

// ErrConflict is a Store's answer to a Save that another replica was faster than.
var ErrConflict = errors.New("another replica was faster")

// Store is where replicas share the authority, and where others find what to trust.
type Store interface {
	// Load returns what was saved, and its version; both empty where nothing was.
	Load(ctx context.Context) (data map[string][]byte, version string, err error)
	// Save replaces what has the version. ErrConflict says that it has another one by now.
	Save(ctx context.Context, data map[string][]byte, version string) error
	// Publish shows everybody the PEM certificates to trust. It does nothing where they are shown already.
	Publish(ctx context.Context, bundle []byte) error
}

// Config says what an Authority signs.
type Config struct {
	// Store is required.
	Store Store
	// Names are the DNS names and IP addresses of the server's certificate. At least one.
	Names []string
	// Log is required.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Authority is a certificate authority with one server certificate.
type Authority struct {
	config Config

	mu     sync.Mutex
	signer *x509.Certificate
	server *tls.Certificate
}

// New makes an Authority that has nothing yet.
func New(config Config) *Authority {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Authority{config: config}
}

// Certificate is the server's certificate, for tls.Config.GetCertificate.
func (a *Authority) Certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server == nil {
		return nil, errors.New("there is no server certificate yet")
	}
	return a.server, nil
}

// Expiry is when the authority and the server's certificate expire; zero before Refresh has worked.
func (a *Authority) Expiry() (authority, server time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server == nil {
		return authority, server
	}
	return a.signer.NotAfter, a.server.Leaf.NotAfter
}

// Run refreshes until ctx ends.
func (a *Authority) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := a.Refresh(ctx); err != nil && ctx.Err() == nil {
			authority, server := a.Expiry()
			a.config.Log.Error("the certificate authority cannot be kept; what there is stays", "error", err,
				"authority_expires", authority, "server_expires", server)
		}
	}
}

// Refresh looks at the store, does what is due there, publishes, and renews the server's certificate when that is due. It is
// to be called once before Run, since without it there is no certificate.
func (a *Authority) Refresh(ctx context.Context) error {
	m, err := a.settle(ctx)
	if err != nil {
		return err
	}
	// First what is trusted, then what is signed by it.
	if err := a.config.Store.Publish(ctx, m.bundle()); err != nil {
		return fmt.Errorf("publish the certificate authority: %w", err)
	}
	if left := m.current.certificate.NotAfter.Sub(a.config.Now()); left < warnBefore {
		a.config.Log.Warn("the certificate authority expires soon", "expires", m.current.certificate.NotAfter)
	}
	return a.renew(m.current)
}

// settle brings the stored material up to date.
func (a *Authority) settle(ctx context.Context) (*material, error) {
	for range attempts {
		data, version, err := a.config.Store.Load(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authority: %w", err)
		}
		stored, err := decode(data)
		if err != nil {
			return nil, err
		}
		m, changed, err := advance(stored, a.config.Now())
		if err != nil || !changed {
			return m, err
		}
		if err = a.save(ctx, m, version); !errors.Is(err, ErrConflict) {
			return m, err
		}
	}
	return nil, fmt.Errorf("save the certificate authority: %w, %d times", ErrConflict, attempts)
}

func (a *Authority) save(ctx context.Context, m *material, version string) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	if err := a.config.Store.Save(ctx, data, version); err != nil {
		return fmt.Errorf("save the certificate authority: %w", err)
	}
	a.config.Log.Info("the certificate authority has moved on", "signs", m.current.certificate.Subject.CommonName,
		"expires", m.current.certificate.NotAfter, "next", m.next != nil, "former", len(m.former))
	return nil
}
