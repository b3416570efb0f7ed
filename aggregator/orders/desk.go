package orders

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Desk holds the orders of all nodes. Use New. All methods may be called from any goroutine.
type Desk struct {
	config Config

	mu     sync.Mutex
	orders map[string]*entry
	// links are the nodes' streams.
	links map[string]*Session
	// pieces counts the bytes of results that are not complete, keptBytes those of results that are.
	pieces, keptBytes int
}

// entry is one order, under way or over.
type entry struct {
	node  string
	order *offrampv1.Order
	// changed is closed, and made anew, when anything about the order has changed.
	changed  chan struct{}
	progress *offrampv1.OrderProgress
	// version counts what was told of progress.
	version int
	// result and failure are how it ended; both are nil while it is under way.
	result  *offrampv1.OrderResult
	failure error
	size    int
	overAt  time.Time
}

// New makes an empty desk.
func New(config Config) *Desk {
	return &Desk{config: config.withDefaults(), orders: map[string]*entry{}, links: map[string]*Session{}}
}

// Place gives an order to a node, or joins the same order that was given before. timeout is how long the node may take; the
// order's deadline and the time of sending are set here. Its error is ErrNoStream, ErrOtherOrder, ErrTooMany, or what kept the
// stream from taking it, after which the order is still under way.
func (d *Desk) Place(node string, order *offrampv1.Order, timeout time.Duration) (*Follower, error) {
	e, session, err := d.place(node, order, timeout)
	if err != nil {
		return nil, err
	}
	if session != nil {
		// A stream that does not take it ends, and the node's next one gets the order again.
		if err := session.send(d.stamped(e)); err != nil {
			d.config.Log.Warn("an order could not be sent; it waits for the node's next stream", "order", order.GetId(), "node", node, "error", err)
		}
	}
	return &Follower{desk: d, entry: e}, nil
}

// place returns the entry, and the stream to send it on; nil where it is on its way or over.
func (d *Desk) place(node string, order *offrampv1.Order, timeout time.Duration) (*entry, *Session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.orders[order.GetId()]; known != nil {
		if known.node != node || !orderform.Same(known.order, order) {
			return nil, nil, ErrOtherOrder
		}
		if known.failure == nil {
			return known, nil, nil
		}
		// What failed here may have ended well on the node.
		d.forget(known)
	}
	session := d.links[node]
	if session == nil {
		return nil, nil, ErrNoStream
	}
	if err := d.room(node); err != nil {
		return nil, nil, err
	}
	own, _ := proto.Clone(order).(*offrampv1.Order)
	own.Deadline = timestamppb.New(d.config.Now().Add(timeout))
	e := &entry{node: node, order: own, changed: make(chan struct{})}
	d.orders[own.GetId()] = e
	return e, session, nil
}

func (d *Desk) room(node string) error {
	underway, here := 0, 0
	for _, e := range d.orders {
		if e.over() {
			continue
		}
		underway++
		if e.node == node {
			here++
		}
	}
	switch {
	case here >= d.config.limits.perNode:
		return fmt.Errorf("%w for node %s: %d", ErrTooMany, node, here)
	case underway >= d.config.limits.total:
		return fmt.Errorf("%w: %d", ErrTooMany, underway)
	default:
		return nil
	}
}

// stamped is the order as it is sent now.
func (d *Desk) stamped(e *entry) *offrampv1.Order {
	order, _ := proto.Clone(e.order).(*offrampv1.Order)
	order.SentAt = timestamppb.New(d.config.Now())
	return order
}

func (e *entry) over() bool { return e.result != nil || e.failure != nil }

// end says how an order ended. d.mu is held.
func (d *Desk) end(e *entry, result *offrampv1.OrderResult, size int, failure error) {
	e.result, e.failure, e.size, e.overAt = result, failure, size, d.config.Now()
	e.progress = nil
	d.keptBytes += size
	e.tell()
	d.makeRoom()
}

func (e *entry) tell() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// makeRoom forgets the oldest results beyond what is kept. Followers hold their own.
func (d *Desk) makeRoom() {
	over := make([]*entry, 0, len(d.orders))
	for _, e := range d.orders {
		if e.over() {
			over = append(over, e)
		}
	}
	slices.SortFunc(over, func(a, b *entry) int {
		return cmp.Or(a.overAt.Compare(b.overAt), cmp.Compare(a.order.GetId(), b.order.GetId()))
	})
	limits, now := d.config.limits, d.config.Now()
	for i, e := range over {
		if len(over)-i > limits.kept || d.keptBytes > limits.keptBytes || now.Sub(e.overAt) > limits.keptFor {
			d.forget(e)
		}
	}
}

func (d *Desk) forget(e *entry) {
	d.keptBytes -= e.size
	delete(d.orders, e.order.GetId())
}

// sweep ends the orders whose nodes did not answer in time, and forgets old results.
func (d *Desk) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.config.Now()
	for _, e := range d.orders {
		if !e.over() && now.After(e.order.GetDeadline().AsTime().Add(d.config.limits.grace)) {
			d.end(e, nil, 0, ErrTooLate)
		}
	}
	d.makeRoom()
}
