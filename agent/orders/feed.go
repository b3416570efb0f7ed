package orders

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Feed is what one stream to an aggregator says and hears of orders. Its methods may be called from any goroutine, Next from
// one at a time.
type Feed struct {
	book *Book
	news chan struct{}

	mu     sync.Mutex
	queue  []item
	closed bool
	// rest is what is still to be sent of a result; restID is empty when nothing is.
	rest   []byte
	restID string
}

// item is something to be sent.
type item struct {
	id       string
	progress *offrampv1.OrderProgress
	// load reads an encoded result; nil for progress.
	load func() ([]byte, error)
	// unrecorded marks an answer that stands nowhere but here.
	unrecorded bool
}

// Order hands over an order that arrived just now. It does not block.
func (f *Feed) Order(order *offrampv1.Order) {
	arrived := time.Now()
	if !f.book.offer(func(ctx context.Context) { f.book.take(ctx, f, order, arrived) }) {
		f.book.refuseUnrecorded(f, order, "too many orders at once")
	}
}

// Acknowledge says that an aggregator holds the result of an order. It does not block; an acknowledgement that is lost makes
// the result be sent once more.
func (f *Feed) Acknowledge(id string) {
	f.book.offer(func(context.Context) { f.book.acknowledge(id) })
}

// Close ends the feed; what was not sent stays with the book.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.queue, f.rest = true, nil, nil
}

// Next waits for the next thing to send, until ctx ends.
func (f *Feed) Next(ctx context.Context) (*offrampv1.OrderUpdate, error) {
	for {
		update, err := f.next()
		if update != nil {
			return update, nil
		}
		if err != nil {
			f.book.config.Log.Error("the result of an order cannot be sent", "error", err)
			continue
		}
		select {
		case <-f.news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next is a part of the result that is being sent, or the oldest thing that waits; nil when nothing does.
func (f *Feed) next() (*offrampv1.OrderUpdate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.restID != "" {
		return f.part(), nil
	}
	if len(f.queue) == 0 {
		return nil, nil
	}
	first := f.queue[0]
	f.queue = f.queue[1:]
	if first.load == nil {
		return &offrampv1.OrderUpdate{Id: first.id, Update: &offrampv1.OrderUpdate_Progress{Progress: first.progress}}, nil
	}
	encoded, err := first.load()
	if err != nil {
		return nil, fmt.Errorf("order %s: %w", first.id, err)
	}
	f.rest, f.restID = encoded, first.id
	return f.part(), nil
}

func (f *Feed) part() *offrampv1.OrderUpdate {
	n := min(len(f.rest), orderform.MaxPart)
	part := &offrampv1.OrderResultPart{Data: f.rest[:n], Last: n == len(f.rest)}
	update := &offrampv1.OrderUpdate{Id: f.restID, Update: &offrampv1.OrderUpdate_Result{Result: part}}
	if f.rest = f.rest[n:]; part.GetLast() {
		f.rest, f.restID = nil, ""
	}
	return update
}

// push queues something. A slow stream gets the latest progress of an order, and none after its result.
func (f *Feed) push(new item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || new.unrecorded && len(f.queue) >= maxQueue {
		return
	}
	about := func(old item) bool { return old.id == new.id && old.unrecorded == new.unrecorded }
	if i := slices.IndexFunc(f.queue, about); i >= 0 {
		if f.queue[i].load == nil {
			f.queue[i] = new
		}
	} else {
		f.queue = append(f.queue, new)
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *Feed) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}
