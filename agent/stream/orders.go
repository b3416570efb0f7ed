package stream

import (
	"context"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/agent/orders"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// orderBook is the book of the configuration, or else one that refuses everything and runs in the group.
func orderBook(ctx context.Context, group *errgroup.Group, config Config) (*orders.Book, error) {
	if config.Orders != nil {
		return config.Orders, nil
	}
	book, err := orders.Open(orders.Config{Node: config.Node, Policy: orders.Never, Now: config.Now, Log: config.Log})
	if err == nil {
		group.Go(func() error { return book.Run(ctx) })
	}
	return book, err
}

// sendUpdates passes on what is to be said of orders, beside reports and heartbeats.
func (c *conversation) sendUpdates(ctx context.Context, feed *orders.Feed) error {
	for {
		update, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		message := &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_OrderUpdate{OrderUpdate: update}}
		if err := c.put(ctx, message); err != nil {
			return err
		}
	}
}
