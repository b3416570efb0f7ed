package auth

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxRecent bounds the answers that are remembered; more of them means that old ones are asked for again.
const maxRecent = 10_000

// recent remembers answers for a short time and asks for each only once at a time. Failures are not remembered.
type recent[V any] struct {
	keep, limit time.Duration
	now         func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	known  map[string]remembered[V]
}

type remembered[V any] struct {
	value V
	until time.Time
}

// newRecent remembers for keep, and gives each question limit to be answered.
func newRecent[V any](keep, limit time.Duration, now func() time.Time) *recent[V] {
	return &recent[V]{keep: keep, limit: limit, now: now, known: map[string]remembered[V]{}}
}

// get returns the remembered answer, or asks.
func (r *recent[V]) get(ctx context.Context, key string, ask func(context.Context) (V, error)) (answer V, err error) {
	if known, ok := r.look(key); ok {
		return known, nil
	}
	done := r.flight.DoChan(key, func() (any, error) {
		// One caller that gives up must not fail the others who wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.limit)
		defer cancel()
		value, err := ask(ctx)
		if err == nil {
			r.put(key, value)
		}
		return value, err
	})
	select {
	case result := <-done:
		value, _ := result.Val.(V)
		return value, result.Err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

func (r *recent[V]) look(key string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.known[key]
	return known.value, ok && r.now().Before(known.until)
}

func (r *recent[V]) put(key string, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if len(r.known) >= maxRecent {
		for key, known := range r.known {
			if len(r.known) >= maxRecent/2 || !now.Before(known.until) {
				delete(r.known, key)
			}
		}
	}
	r.known[key] = remembered[V]{value, now.Add(r.keep)}
}
