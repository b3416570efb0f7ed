package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"offramp.dev/offramp/aggregator/metrics"
	"offramp.dev/offramp/internal/scrape"
)

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	return err == nil && port != ""
}

// serveMetrics serves metrics and health until ctx ends, where somebody asked for them.
func (s *runSettings) serveMetrics(ctx context.Context, sources metrics.Sources, ready func() error, log *slog.Logger) error {
	if s.metrics == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.metrics)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	log.Info("serving metrics", "address", listener.Addr().String())
	return scrape.Serve(ctx, listener, scrape.Handlers{Live: scrape.Alive, Ready: ready, Metrics: metrics.Handler(sources)})
}
