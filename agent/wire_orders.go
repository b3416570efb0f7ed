package main

import (
	"context"
	"fmt"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/agent/orders"
)

// orderBook decides on orders from aggregators, and has those that are obeyed done on this node.
func (p parts) orderBook(r reporting, m *metrics.Metrics) (*orders.Book, error) {
	config := r.config
	config.History = false // an order is judged by a reading of its own, as a clean-up on the node is
	read := func(ctx context.Context) (*cleanup.Reading, error) {
		limited, cancel := context.WithTimeout(ctx, defaultReading)
		defer cancel()
		facts, inventory := p.exact(limited, config)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("interrupted: %w", err)
		}
		return &cleanup.Reading{Facts: facts, Inventory: inventory}, nil
	}
	noted := p.noted(p.executor(config.Host, r.stateDir), noting{
		config: config, stateDir: r.stateDir, connect: r.connect, told: m.Finished, log: r.log,
	})
	hands := orders.Hands{Executor: noted, Read: read, Now: config.Host.Now}
	return orders.Open(orders.Config{
		Node: config.Node, Policy: r.cleanup, StateDir: r.stateDir, Storage: durable,
		Work: hands.Work, Interrupted: orders.Journal(r.stateDir), Now: config.Host.Now, Log: r.log,
	})
}

// durable asks for no more room than is spare anyway: what a clean-up wants is a guard of its own.
func durable(dir string) error { return cleanup.CheckStorage(dir, 0) }

// obey runs the book beside the stream.
func obey(ctx context.Context, r reporting, book *orders.Book) error {
	if r.cleanup != orders.Never {
		r.log.Info("taking orders", "cleanup", r.cleanup, "state_dir", r.stateDir)
	}
	return book.Run(ctx)
}
