package stream

import (
	"context"
	"crypto/rand"
	"time"

	"golang.org/x/sync/errgroup"
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
	for _, address := range config.Addresses {
		peer := &peer{
			config: config, address: address, instance: instance, board: board, book: book,
			backoff: backoff{first: config.limits.firstBackoff, most: config.limits.maxBackoff, rand: config.Rand},
			log:     config.Log.With("aggregator", address),
		}
		group.Go(func() error { peer.run(ctx); return nil })
	}
	return group.Wait()
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
