package orders

import (
	"context"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Follower follows one order. It is for one goroutine.
type Follower struct {
	desk  *Desk
	entry *entry
	seen  int
}

// Next waits for news: the latest progress, or the result, which is the last. A slow reader misses progress in between. Its
// error is ErrTooLate, ErrTooLarge, ErrUnreadable, or that of ctx. Neither progress nor result may be changed.
func (f *Follower) Next(ctx context.Context) (*offrampv1.OrderProgress, *offrampv1.OrderResult, error) {
	for {
		progress, result, err, changed := f.look()
		if progress != nil || result != nil || err != nil {
			return progress, result, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

//nolint:revive // the channel is what to wait for where the others are nil
func (f *Follower) look() (*offrampv1.OrderProgress, *offrampv1.OrderResult, error, <-chan struct{}) {
	f.desk.mu.Lock()
	defer f.desk.mu.Unlock()
	e := f.entry
	if e.over() {
		return nil, e.result, e.failure, nil
	}
	if e.progress == nil || e.version == f.seen {
		return nil, nil, nil, e.changed
	}
	f.seen = e.version
	return e.progress, nil, nil, nil
}
