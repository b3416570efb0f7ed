package stream

import (
	"context"
	"crypto/rand"
	"time"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/agent/discover"
)

// Run reads the node again and again and reports it to every aggregator until ctx ends; then it returns nil. Every
// goroutine that it starts has ended by then. It fails only on a Config that cannot work.
func Run(ctx context.Context, config Config) error {
	config, err := config.withDefaults()
	if err != nil {
		return err
	}
	board := newBoard()
	instance := rand.Text()
	group, ctx := errgroup.WithContext(ctx)
	book, err := orderBook(ctx, group, config)
	if err != nil {
		return err
	}
	group.Go(func() error { scanLoop(ctx, config, board); return nil })
	common := peer{config: config, instance: instance, board: board, book: book, claims: newClaims()}
	for _, target := range config.targets {
		group.Go(func() error { follow(ctx, group, common, target); return nil })
	}
	return group.Wait()
}

// follow keeps a peer in the group for each address that a target has.
func follow(ctx context.Context, group *errgroup.Group, common peer, target discover.Target) {
	hints := make(chan struct{}, 1)
	hint := func() {
		select {
		case hints <- struct{}{}:
		default:
		}
	}
	all := &replicas{members: map[string]*member{}, begin: func(ctx context.Context, m *member) {
		one := newPeer(common, target, m)
		group.Go(func() error { one.run(ctx); return nil })
	}}
	common.config.Finder.Follow(ctx, target, hints, func(addresses []string) { all.set(ctx, addresses, hint) })
}

// scanLoop is the one that reads, whether or not anybody listens.
func scanLoop(ctx context.Context, config Config, board *board) {
	for ctx.Err() == nil {
		node := config.Source.Scan(ctx)
		if ctx.Err() != nil {
			// A scan that was cut short says of much that it could not be read, which nobody needs to hear.
			return
		}
		board.publish(newSnapshot(node, config.Now(), config.Log))
		rest(ctx, jitter(config.ScanInterval, config.Rand), config.Changes)
	}
}

// rest waits for d, for a change, or for the end of ctx.
func rest(ctx context.Context, d time.Duration, changes <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-changes:
	case <-ctx.Done():
	}
}

// jitter returns d, up to a tenth shorter or longer.
func jitter(d time.Duration, rand func() float64) time.Duration {
	return d + time.Duration((rand()-0.5)*0.2*float64(d))
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
