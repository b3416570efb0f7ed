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
		progress, result, changed, err := f.look()
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

// look returns what is new, or else the channel that is closed when something is.
func (f *Follower) look() (*offrampv1.OrderProgress, *offrampv1.OrderResult, <-chan struct{}, error) {
	f.desk.mu.Lock()
	defer f.desk.mu.Unlock()
	e := f.entry
	if e.over() {
		return nil, e.result, nil, e.failure
	}
	if e.progress == nil || e.version == f.seen {
		return nil, nil, e.changed, nil
	}
	f.seen = e.version
	return e.progress, nil, nil, nil
}
