package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/metrics"
	"offramp.dev/offramp/aggregator/serve"
	"offramp.dev/offramp/internal/scrape"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	return err == nil && port != ""
}

// serveMetrics serves metrics until ctx ends, where somebody asked for them.
func (s *runSettings) serveMetrics(ctx context.Context, made *identified, store *fleet.Store, log *slog.Logger) error {
	if s.metrics == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.metrics)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	log.Info("serving metrics", "address", listener.Addr().String())
	return scrape.Serve(ctx, listener, metrics.Handler(metrics.Sources{
		Readiness: func() *offrampv1.GetReadinessResponse {
			return store.Readiness(offrampv1.Target_TARGET_NFTABLES, fleet.Filter{}, "")
		},
		ServerExpiry:    func() time.Time { return serve.CertificateExpiry(made.tls) },
		AuthorityExpiry: made.authorityExpiry, Refusals: made.guard.Refusals,
	}))
}
