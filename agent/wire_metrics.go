package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/internal/scrape"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// measured is a watcher of which every reading is counted.
type measured struct {
	*collect.Watcher
	counts *metrics.Metrics
	now    func() time.Time
}

// Scan reads the node as the watcher does.
func (m *measured) Scan(ctx context.Context) *offrampv1.NodeFacts {
	began := m.now()
	facts := m.Watcher.Scan(ctx)
	ended := m.now()
	m.counts.Scanned(facts, ended, ended.Sub(began))
	return facts
}

// serveMetrics serves metrics until ctx ends, where that was asked for.
func serveMetrics(ctx context.Context, r reporting, counts *metrics.Metrics) error {
	if r.metricsListen == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.metricsListen)
	if err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	r.log.Info("serving metrics", "address", listener.Addr().String())
	return scrape.Serve(ctx, listener, scrape.Handlers{Metrics: counts.Handler(), Live: scrape.Alive})
}
