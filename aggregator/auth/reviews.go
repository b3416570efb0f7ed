package auth

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// reviewLimit bounds one review, reviewsAtOnce how many wait for the API server.
	reviewLimit   = 10 * time.Second
	reviewsAtOnce = 8
	// retryReview is when a review that failed is tried again.
	retryReview = 30 * time.Second
)

// tokenKey stands for a token, so that those of nobody who is connected need not be kept.
type tokenKey = [sha256.Size]byte

// reviews confirms agents' tokens behind their backs: at a bounded rate, each token once at a time, again and again while it
// has streams. What the API server does not confirm is refused from then on, and its streams end.
type reviews struct {
	ask      func(ctx context.Context, token string) (Review, error)
	every    time.Duration
	limiter  *rate.Limiter
	now      func() time.Time
	log      *slog.Logger
	sooner   chan struct{} // something is due before what was waited for
	mu       sync.Mutex
	tokens   map[tokenKey]*reviewed
	queue    reviewQueue
	sweepAt  int
	lastFail time.Time
}

// reviewed is a token that an agent came with.
type reviewed struct {
	token, name string
	until       time.Time
	due         time.Time
	queued      bool
	asking      bool
	index       int
	streams     map[*follower]struct{}
	refusal     error
}

type follower struct{ end func(error) }

func newReviews(config TokensConfig) *reviews {
	return &reviews{
		ask: func(ctx context.Context, token string) (Review, error) {
			return config.API.ReviewToken(ctx, token, config.Audience)
		},
		every: config.ReviewEvery, limiter: rate.NewLimiter(rate.Limit(config.ReviewsPerSecond), 1),
		now: config.Now, log: config.Log, sooner: make(chan struct{}, 1), tokens: map[tokenKey]*reviewed{}, sweepAt: 1024,
	}
}

// run reviews until ctx ends.
func (r *reviews) run(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(reviewsAtOnce)
	defer func() { _ = group.Wait() }()
	for {
		known, token := r.next(ctx)
		if known == nil || r.limiter.Wait(ctx) != nil {
			return
		}
		group.Go(func() error { r.review(ctx, known, token); return nil })
	}
}

// next waits for a token whose review is due. It returns nil when ctx ends.
func (r *reviews) next(ctx context.Context) (*reviewed, string) {
	for {
		known, token, wait := r.pop()
		if known != nil {
			return known, token
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ""
		case <-r.sooner:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pop takes what is due from the queue, or says how long nothing will be. Tokens that nobody is connected with fall out.
func (r *reviews) pop() (known *reviewed, token string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) > 0 {
		first := r.queue[0]
		if wait := first.due.Sub(r.now()); wait > 0 {
			return nil, "", wait
		}
		heap.Pop(&r.queue)
		first.queued = false
		// In its last seconds the API server may already say that it has expired, which is no news.
		if len(first.streams) == 0 || r.now().After(first.until.Add(-leeway)) {
			first.token = ""
			continue
		}
		first.asking = true
		return first, first.token, 0
	}
	return nil, "", time.Hour
}

// review asks about one token and sees to what follows from the answer.
func (r *reviews) review(ctx context.Context, known *reviewed, token string) {
	ctx, cancel := context.WithTimeout(ctx, reviewLimit)
	defer cancel()
	answer, err := r.ask(ctx, token)
	r.mu.Lock()
	defer r.mu.Unlock()
	known.asking = false
	switch {
	case err != nil:
		r.failed(err)
		known.due = r.now().Add(retryReview)
	case answer.Authenticated && answer.User.Name == known.name:
		known.due = r.now().Add(r.every)
	case r.now().After(known.until):
		// It expired while it waited. Its streams end by themselves.
		return
	default:
		r.refuse(known, answer)
		return
	}
	if len(known.streams) > 0 {
		r.enqueue(known)
	}
}

// refuse ends the streams of a token that was withdrawn. The caller holds the lock; ending a stream does not block.
func (r *reviews) refuse(known *reviewed, answer Review) {
	known.token = ""
	known.refusal = status.Errorf(codes.Unauthenticated, "the API server does not confirm the token (is its pod gone?): %s", answer.Reason)
	for f := range known.streams {
		f.end(known.refusal)
	}
}

// failed tells of a review that came to nothing, at most twice a minute. The caller holds the lock.
func (r *reviews) failed(err error) {
	if now := r.now(); now.Sub(r.lastFail) >= retryReview {
		r.lastFail = now
		r.log.Error("tokens cannot be reviewed; agents stay on their signatures until they expire", "error", err)
	}
}
