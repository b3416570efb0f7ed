package main

import (
	"context"
	"os"

	"offramp.dev/offramp/agent/collect"
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
		hostname: os.Hostname,
	}
}

// report reads the node and streams it to every aggregator until ctx ends.
func report(ctx context.Context, r reporting) error {
	return stream.Run(ctx, stream.Config{
		Addresses:    r.aggregators,
		Credentials:  r.credentials,
		Node:         r.config.Node,
		AgentVersion: r.config.AgentVersion,
		Source:       collect.New(r.config),
		ScanInterval: r.scanInterval,
		Log:          r.log,
		Now:          r.config.Host.Now,
	})
}
