package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"
)

const (
	// expiryEvery is how often the server's certificate is looked at, expirySoon how much of its life is too little: whoever
	// renews certificates has done so before.
	expiryEvery = time.Hour
	expirySoon  = 48 * time.Hour
)

// CertificateExpiry is when the certificate expires that a server with this configuration shows now; zero where it shows none.
func CertificateExpiry(config *tls.Config) time.Time {
	if config == nil {
		return time.Time{}
	}
	if config.GetConfigForClient != nil {
		if current, err := config.GetConfigForClient(nil); err == nil && current != nil {
			config = current
		}
	}
	shown := &tls.Certificate{}
	if len(config.Certificates) > 0 {
		shown = &config.Certificates[0]
	} else if config.GetCertificate != nil {
		if made, err := config.GetCertificate(nil); err == nil {
			shown = made
		}
	}
	if shown.Leaf == nil {
		return time.Time{}
	}
	return shown.Leaf.NotAfter
}

// WarnOfExpiry logs, now and each hour until ctx ends, when the server's certificate is about to expire or has.
func WarnOfExpiry(ctx context.Context, config *tls.Config, log *slog.Logger) {
	ticker := time.NewTicker(expiryEvery)
	defer ticker.Stop()
	for {
		if expires := CertificateExpiry(config); !expires.IsZero() && time.Until(expires) < expirySoon {
			log.Warn("the server's certificate expires soon, or has expired, and nobody has renewed it", "expires", expires)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
