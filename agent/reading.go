package main

import (
	"context"
	"fmt"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
)

// reading returns what reads the node for a clean-up, with what the agent that keeps its memory in stateDir remembers.
func (p parts) reading(config collect.Config, stateDir string, timeout time.Duration) func(context.Context) (*cleanup.Reading, error) {
	return func(ctx context.Context) (*cleanup.Reading, error) {
		config := config
		if stateDir != "" {
			var err error
			if config.ExcludeCIDRs, err = p.recall(stateDir); err != nil {
				return nil, err
			}
		}
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		facts, inventory := p.exact(limited, config)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("interrupted: %w", err)
		}
		return &cleanup.Reading{Facts: facts, Inventory: inventory}, nil
	}
}
