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

// details are the questions that one agent was asked.
type details struct {
	mu      sync.Mutex
	last    uint64
	pending map[uint64]answer
}

// answer takes the parts of one answer, in the goroutine that reads the agent's stream, whose context ctx is. True when no
// more parts are wanted.
type answer interface {
	pass(ctx context.Context, part *offrampv1.DetailPart, size int) (complete bool)
}

// detail is a list that is coming in. Its fields belong to the goroutine that reads the agent's stream until done is closed.
type detail struct {
	want  *offrampv1.ListDigest
	items []string
	bytes int
	err   error
	done  chan struct{}
}

func (d *details) expect(waiting answer) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending) >= maxPending {
		return 0, errors.New("too much is being asked of this node already")
	}
	if d.pending == nil {
		d.pending = map[uint64]answer{}
	}
	d.last++
	d.pending[d.last] = waiting
	return d.last, nil
}

// forget reports whether the question was still open.
func (d *details) forget(id uint64) (open bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, open = d.pending[id]
	delete(d.pending, id)
	return open
}

// find returns who waits for an answer; nil when whoever asked has given up.
func (d *details) find(id uint64) (answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == 0 || id > d.last {
		return nil, outOfOrder("a part of an answer to question %d, which was not asked", id)
	}
	return d.pending[id], nil
}

// take adds a part to its answer. Its error ends the stream: a part that is too large, or of a question never asked.
func (d *details) take(ctx context.Context, part *offrampv1.DetailPart) error {
	size := 0
	for _, item := range part.GetItems() {
		size += len(item)
	}
	if size > maxPart {
		return fmt.Errorf("a part of %d bytes of items, more than %d", size, maxPart)
	}
	waiting, err := d.find(part.GetId())
	if err != nil || waiting == nil {
		return err
	}
	if waiting.pass(ctx, part, size) {
		d.forget(part.GetId())
	}
	return nil
}

func (w *detail) pass(_ context.Context, part *offrampv1.DetailPart, size int) bool {
	complete := w.add(part, size)
	if complete {
		close(w.done)
	}
	return complete
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
	waiting := &detail{want: want, done: make(chan struct{})}
	id, err := l.details.expect(waiting)
	if err != nil {
		return nil, err
	}
	defer l.callOff(id, limit)
	request := &offrampv1.DetailRequest{Id: id, Detail: &offrampv1.DetailRequest_List{List: want}}
	if err := l.send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_DetailRequest{DetailRequest: request}}, limit); err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	select {
	case <-waiting.done:
		l.details.forget(id)
		return waiting.checked()
	case <-l.stream.Context().Done():
		return nil, errors.New("the node's stream ended before it answered")
	case <-ctx.Done():
		return nil, fmt.Errorf("the node did not answer within %v", limit)
	}
}

// callOff forgets a question, and tells the agent when its answer is still to come.
func (l *link) callOff(id uint64, limit time.Duration) {
	if l.details.forget(id) && l.stream.Context().Err() == nil {
		// Where it cannot be told, the stream ends, and the answer with it.
		_ = l.send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_DetailCancel{
			DetailCancel: &offrampv1.DetailCancel{Id: id},
		}}, limit)
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
