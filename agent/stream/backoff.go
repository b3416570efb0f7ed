package stream

import "time"

// backoff says how long to wait before the next attempt: a random time of at least a fifth of a bound that doubles with each
// attempt, so that agents that lost their aggregator together do not come back together.
type backoff struct {
	first, most time.Duration
	rand        func() float64

	bound time.Duration
}

// next is the pause before the next attempt.
func (b *backoff) next() time.Duration {
	b.bound = min(max(b.first, 2*b.bound), b.most)
	return time.Duration((0.2 + 0.8*b.rand()) * float64(b.bound))
}

// reset makes the next attempt come soon.
func (b *backoff) reset() { b.bound = 0 }

// within bounds all later pauses, the first one too: where heartbeats are that frequent, so must attempts be.
func (b *backoff) within(most time.Duration) { b.most = most }

// spread makes the first pause after a loss that long where it would be shorter. An aggregator that goes away loses all its agents
// at once, and ten thousand handshakes take it tens of seconds.
func (b *backoff) spread(first time.Duration) { b.first = max(b.first, first) }
