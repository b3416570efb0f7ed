package orders

import (
	"context"
	"errors"
	"log/slog"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Link is a node's stream.
type Link interface {
	// Send sends one message, or ends the stream when the node does not take it in time.
	Send(message *offrampv1.ConnectResponse) error
}

// Why an order is not taken, or not followed to its end. They are told with errors.Is.
var (
	// ErrNoStream says that the node has no stream to this aggregator.
	ErrNoStream = errors.New("the node has no stream to this aggregator")
	// ErrOtherOrder says that an order of this id wants something else, or is another node's.
	ErrOtherOrder = errors.New("another order has this id")
	// ErrTooMany says that too many orders are under way.
	ErrTooMany = errors.New("too many orders are under way")
	// ErrTooLate says that the node did not answer in time.
	ErrTooLate = errors.New("the node did not answer in time; what it still does is told by asking again with the same id")
	// ErrTooLarge says that what nodes answer does not fit in here.
	ErrTooLarge = errors.New("the node's answer is larger than may be, or too many are being held")
	// ErrUnreadable says that the node's answer cannot be read.
	ErrUnreadable = errors.New("the node's answer cannot be read")
)

// Config is what a Desk needs. Log is required, every other zero value has a default.
type Config struct {
	Log *slog.Logger
	// Now is the aggregator's clock, by which deadlines are set. Default time.Now.
	Now func() time.Time
	// Unasked, where it is not nil, is told of results that nobody here waits for.
	Unasked func(node string, result *offrampv1.OrderResult)

	limits limits
}

// limits are the bounds that only tests change.
type limits struct {
	// perNode and total bound the orders under way.
	perNode, total int
	// kept, keptBytes and keptFor bound the results that are kept for those who ask again.
	kept, keptBytes int
	keptFor         time.Duration
	// pieces bounds, in bytes, what was taken of results that are not complete.
	pieces int
	// grace is how long after an order's deadline its node may still answer.
	grace time.Duration
}

func defaultLimits() limits {
	return limits{
		perNode: 4, total: 1024, kept: 256, keptBytes: 64 << 20, keptFor: 15 * time.Minute,
		pieces: 128 << 20, grace: 10 * time.Second,
	}
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Unasked == nil {
		c.Unasked = func(string, *offrampv1.OrderResult) {}
	}
	if c.limits == (limits{}) {
		c.limits = defaultLimits()
	}
	return c
}

// Run drops what is over until ctx ends.
func (d *Desk) Run(ctx context.Context) {
	ticker := time.NewTicker(max(d.config.limits.grace/10, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.sweep()
		}
	}
}
