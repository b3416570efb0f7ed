package fleet

import (
	"context"
	"sync"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// watchers are told the names of nodes that changed.
type watchers struct {
	mu  sync.RWMutex
	all map[*Watcher]struct{}
}

func (w *watchers) tell(name string) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for watcher := range w.all {
		watcher.add(name)
	}
}

// Watcher follows the fleet for one target. It remembers only which nodes changed since it last looked, each once: a slow
// one makes nobody wait and holds at most one name per node.
type Watcher struct {
	store  *Store
	target offrampv1.Target
	wake   chan struct{}

	mu      sync.Mutex
	queue   []string
	pending map[string]struct{}
}

// Watch begins to follow. The caller must Close the Watcher. Everything that changes after the call is told by Next.
func (s *Store) Watch(target offrampv1.Target) *Watcher {
	s.asked[target].Store(true)
	w := &Watcher{store: s, target: target, wake: make(chan struct{}, 1), pending: map[string]struct{}{}}
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	s.watchers.all[w] = struct{}{}
	return w
}

// Close ends the following.
func (w *Watcher) Close() {
	w.store.watchers.mu.Lock()
	defer w.store.watchers.mu.Unlock()
	delete(w.store.watchers.all, w)
}

func (w *Watcher) add(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waiting := w.pending[name]; waiting {
		return
	}
	w.pending[name] = struct{}{}
	w.queue = append(w.queue, name)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Next waits for a node that changed and returns it as it is by then, or its forgetting. It fails when ctx ends.
func (w *Watcher) Next(ctx context.Context) (*offrampv1.WatchResponse, error) {
	for {
		if name, any := w.take(); any {
			return w.event(name), nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-w.wake:
		}
	}
}

func (w *Watcher) take() (name string, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		// The array behind the queue is given up here, so that it does not grow for ever.
		w.queue = nil
		return "", false
	}
	name, w.queue = w.queue[0], w.queue[1:]
	delete(w.pending, name)
	return name, true
}

func (w *Watcher) event(name string) *offrampv1.WatchResponse {
	if summary := w.store.Summary(w.target, name); summary != nil {
		return &offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Node{Node: summary}}
	}
	return &offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Forgotten{Forgotten: name}}
}
