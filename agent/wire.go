package main

import (
	"context"
	"os"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/agent/stream"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// realParts are the parts of a real agent.
func realParts() parts {
	return parts{
		scan: func(ctx context.Context, config collect.Config) *offrampv1.NodeFacts {
			return collect.New(config).Scan(ctx)
		},
		assess:   readiness.Assess,
		exitCode: readiness.ExitCode,
		report:   report,
		exact: func(ctx context.Context, config collect.Config) (*offrampv1.NodeFacts, *inventory.Node) {
			return collect.New(config).Exact(ctx)
		},
		executor: func(host collect.Host, stateDir string) executor {
			return cleanup.NewExecutor(cleanup.ExecutorConfig{StateDir: stateDir, Proc: host.Proc, Now: host.Now})
		},
		hostname: os.Hostname,
	}
}

// report watches the node and streams it to every aggregator until ctx ends.
func report(ctx context.Context, r reporting) error {
	watcher := collect.New(r.config).Watch(collect.WatchConfig{})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watcher.Run(ctx) })
	group.Go(func() error { return stream.Run(ctx, streamConfig(r, watcher)) })
	return group.Wait()
}

func streamConfig(r reporting, watcher *collect.Watcher) stream.Config {
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
	return config
}
