package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// details are the lists that one agent was asked for.
type details struct {
	mu      sync.Mutex
	last    uint64
	pending map[uint64]*detail
}

// detail is an answer that is coming in. Its fields belong to details.mu until done is closed.
type detail struct {
	want  *offrampv1.ListDigest
	items []string
	bytes int
	err   error
	done  chan struct{}
}

func (d *details) expect(want *offrampv1.ListDigest) (uint64, *detail, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending) >= maxPending {
		return 0, nil, errors.New("too much is being asked of this node already")
	}
	if d.pending == nil {
		d.pending = map[uint64]*detail{}
	}
	d.last++
	waiting := &detail{want: want, done: make(chan struct{})}
	d.pending[d.last] = waiting
	return d.last, waiting, nil
}

func (d *details) forget(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pending, id)
}

// take adds a part to its answer. Its error ends the stream: a part that is too large, or of a question never asked.
func (d *details) take(part *offrampv1.DetailPart) error {
	size := 0
	for _, item := range part.GetItems() {
		size += len(item)
	}
	if size > maxPart {
		return fmt.Errorf("a part of %d bytes of items, more than %d", size, maxPart)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.pending[part.GetId()]
	switch {
	case waiting != nil:
		if waiting.add(part, size) {
			delete(d.pending, part.GetId())
			close(waiting.done)
		}
		return nil
	case part.GetId() == 0 || part.GetId() > d.last:
		return outOfOrder("a part of an answer to question %d, which was not asked", part.GetId())
	default:
		// Whoever asked has given up.
		return nil
	}
}

// add reports whether the answer is complete or not worth waiting for any more.
func (w *detail) add(part *offrampv1.DetailPart, size int) bool {
	w.bytes += size
	if part.GetError() != "" {
		w.err = fmt.Errorf("the node says: %.1024s", part.GetError())
		return true
	}
	if w.bytes > maxList || uint64(len(w.items)+len(part.GetItems())) > w.want.GetCount() {
		w.err = errors.New("the node sends more than the list that it reported")
		return true
	}
	w.items = append(w.items, part.GetItems()...)
	return part.GetLast()
}

// fetch asks the agent for a list and checks what comes: a list is shared by all nodes that name its digest, so one node
// must not be able to speak for the others.
func (l *link) fetch(ctx context.Context, want *offrampv1.ListDigest, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	id, waiting, err := l.details.expect(want)
	if err != nil {
		return nil, err
	}
	defer l.details.forget(id)
	request := &offrampv1.DetailRequest{Id: id, Detail: &offrampv1.DetailRequest_List{List: want}}
	if err := l.send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_DetailRequest{DetailRequest: request}}, limit); err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	select {
	case <-waiting.done:
		return waiting.checked()
	case <-l.stream.Context().Done():
		return nil, errors.New("the node's stream ended before it answered")
	case <-ctx.Done():
		return nil, fmt.Errorf("the node did not answer within %v", limit)
	}
}

func (w *detail) checked() ([]string, error) {
	if w.err != nil {
		return nil, w.err
	}
	for _, item := range w.items {
		if strings.Contains(item, "\n") {
			return nil, errors.New("the node sent an item of more than one line")
		}
	}
	if got := facts.ListDigest(w.want.GetName(), w.items); string(got.GetDigest()) != string(w.want.GetDigest()) {
		return nil, errors.New("what the node sent is not the list that it reported")
	}
	return w.items, nil
}
