package auth

import (
	"container/heap"
	"time"
)

// refused returns why a token is refused, nil while it is confirmed or was not reviewed yet.
func (r *reviews) refused(key tokenKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.tokens[key]; known != nil {
		return known.refusal
	}
	return nil
}

// follow has a token reviewed for as long as one stream rests on it. It never waits.
func (r *reviews) follow(key tokenKey, token, name string, until time.Time, end func(error)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.tokens[key]
	if known == nil {
		r.sweep()
		known = &reviewed{token: token, name: name, until: until, due: r.now(), streams: map[*follower]struct{}{}}
		r.tokens[key] = known
	}
	if known.refusal != nil {
		end(known.refusal)
		return func() {}
	}
	f := &follower{end: end}
	known.streams[f] = struct{}{}
	known.token = token
	r.enqueue(known)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(known.streams, f)
	}
}

// enqueue makes a token wait for its review, unless it does already. The caller holds the lock.
func (r *reviews) enqueue(known *reviewed) {
	if known.queued || known.asking {
		return
	}
	known.queued = true
	heap.Push(&r.queue, known)
	if known.index == 0 {
		select {
		case r.sooner <- struct{}{}:
		default:
		}
	}
}

// sweep forgets expired tokens, now and then. The caller holds the lock.
func (r *reviews) sweep() {
	if len(r.tokens) < r.sweepAt {
		return
	}
	now := r.now()
	for key, known := range r.tokens {
		if len(known.streams) == 0 && now.After(known.until.Add(leeway)) {
			delete(r.tokens, key)
		}
	}
	r.sweepAt = max(1024, 2*len(r.tokens))
}
