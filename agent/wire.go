package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/discover"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/agent/memory"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/agent/probe"
	"offramp.dev/offramp/agent/stream"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// realParts are the parts of a real agent.
func realParts() parts {
	p := parts{
		scan: func(ctx context.Context, config collect.Config) *offrampv1.NodeFacts {
			return collect.New(config).Scan(ctx)
		},
		assess:   readiness.Assess,
		exitCode: readiness.ExitCode,
		exact: func(ctx context.Context, config collect.Config) (*offrampv1.NodeFacts, *inventory.Node) {
			return collect.New(config).Exact(ctx)
		},
		executor: func(host collect.Host, stateDir string) executor {
			return cleanup.NewExecutor(cleanup.ExecutorConfig{StateDir: stateDir, Proc: host.Proc, Now: host.Now})
		},
		recall:   memory.ExcludeCIDRs,
		hostname: os.Hostname,
		services: func(ctx context.Context, config collect.Config) ([]inventory.Service, error) {
			return collect.New(config).Services(ctx, probe.Pick)
		},
		prober: &probe.Prober{},
		audit:  func(stateDir string) audit.Keeper { return &audit.Log{StateDir: stateDir} },
		caller: callerOnNode,
	}
	p.report = p.reportAndObey
	return p
}

// reportAndObey watches the node, streams it to every aggregator and takes their orders until ctx ends.
func (p parts) reportAndObey(ctx context.Context, r reporting) error {
	counts := metrics.New()
	book, err := p.orderBook(r, counts)
	if err != nil {
		return fmt.Errorf("take orders: %w", err)
	}
	config := r.config
	if r.stateDir != "" {
		kept := &memory.File{Node: config.Node, StateDir: r.stateDir, Storage: durable, Log: r.log}
		defer func() { _ = kept.Close() }()
		config.Memory = kept
	}
	watcher := collect.New(config).Watch(collect.WatchConfig{})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watcher.Run(ctx) })
	group.Go(func() error { return obey(ctx, r, book) })
	group.Go(func() error { return serveMetrics(ctx, r, counts) })
	group.Go(func() error {
		config, err := streamConfig(r, watcher)
		if err != nil {
			return err
		}
		config.Source = &measured{watcher, counts, r.config.Host.Now}
		config.Orders = book
		return stream.Run(ctx, config)
	})
	return group.Wait()
}

func streamConfig(r reporting, watcher *collect.Watcher) (stream.Config, error) {
	config := stream.Config{
		Addresses:    r.aggregators,
		Credentials:  r.credentials,
		Node:         r.config.Node,
		AgentVersion: r.config.AgentVersion,
		Source:       watcher,
		Changes:      watcher.Changes(),
		ScanInterval: r.scanInterval,
		Log:          r.log,
		Now:          r.config.Host.Now,
	}
	if r.token != nil {
		config.DialOptions = []grpc.DialOption{grpc.WithPerRPCCredentials(r.token)}
	}
	if r.stateDir == "" {
		return config, nil
	}
	targets, err := stream.Targets(r.aggregators)
	config.Finder.Memory = discover.Open(r.stateDir, targets, r.log)
	return config, err
}
