package main

import (
	"context"
	"errors"
	"os"

	"offramp.dev/offramp/agent/collect"
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

func report(context.Context, reporting) error { return errors.New("not built yet") }
