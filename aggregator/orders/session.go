package orders

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Session is one stream of one node, as far as it is about orders. Update and Close are for the goroutine of the stream.
type Session struct {
	desk *Desk
	node string
	link Link
	// pieces are those of results that are not complete, by the id of the order.
	pieces map[string][]byte
	// skipping are the ids of results that nobody here waits for, or that are too large: their pieces are passed over.
	skipping map[string]bool
}

// maxSkipping bounds the results that one stream may have begun and that nobody waits for. An agent sends one at a time.
const maxSkipping = 16

// Join says that a node has a stream; a former one of the same node counts no more. The orders that are under way for the
// node are sent again: it does each once.
func (d *Desk) Join(node string, link Link) (*Session, error) {
	s := &Session{desk: d, node: node, link: link, pieces: map[string][]byte{}, skipping: map[string]bool{}}
	for _, e := range d.join(s) {
		if err := s.send(d.stamped(e)); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (d *Desk) join(s *Session) []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links[s.node] = s
	var again []*entry
	for _, e := range d.orders {
		if e.node == s.node && !e.over() {
			again = append(again, e)
		}
	}
	return again
}

// Close says that the stream has ended.
func (s *Session) Close() {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	if s.desk.links[s.node] == s {
		delete(s.desk.links, s.node)
	}
	for id := range s.pieces {
		s.drop(id)
	}
}

func (s *Session) send(order *offrampv1.Order) error {
	return s.link.Send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_Order{Order: order}})
}

var errForm = errors.New("an update of an order without an id, or with a part that is longer than may be")

// Update takes what the node says of an order. It says something of its own orders alone: what it says of another's counts for
// nothing. A result that is complete is acknowledged, also where nobody waits for it. An error ends the stream.
func (s *Session) Update(update *offrampv1.OrderUpdate) error {
	id := update.GetId()
	if id == "" || len(id) > maxID || update.GetUpdate() == nil || len(update.GetResult().GetData()) > orderform.MaxPart {
		return errForm
	}
	if progress := update.GetProgress(); progress != nil {
		s.desk.progress(s.node, id, progress)
		return nil
	}
	got, err := s.take(id, update.GetResult())
	if err != nil || !got.complete {
		return err
	}
	s.desk.finish(s.node, id, got)
	return s.link.Send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_OrderAcknowledgement{
		OrderAcknowledgement: &offrampv1.OrderAcknowledgement{Id: id},
	}})
}

// maxID bounds the id of an order, in bytes (order.proto), maxStep what is for people in progress.
const (
	maxID   = 64
	maxStep = 256
)

func (d *Desk) progress(node, id string, progress *offrampv1.OrderProgress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.orders[id]
	if e == nil || e.node != node || e.over() || len(progress.GetStep()) > maxStep {
		return
	}
	e.progress = progress
	e.version++
	e.tell()
}

// got is what came of a piece.
type got struct {
	complete bool
	// encoded is the whole result; nil where it was passed over in pieces.
	encoded []byte
	// wanted says that somebody here waits for it.
	wanted bool
}

// take collects a piece.
func (s *Session) take(id string, part *offrampv1.OrderResultPart) (got, error) {
	s.desk.mu.Lock()
	defer s.desk.mu.Unlock()
	if s.skipping[id] || !s.desk.waited(s.node, id) {
		return s.skip(id, part)
	}
	s.desk.pieces += len(part.GetData())
	s.pieces[id] = append(s.pieces[id], part.GetData()...)
	if len(s.pieces[id]) > orderform.MaxResult || s.desk.pieces > s.desk.config.limits.pieces {
		s.desk.end(s.desk.orders[id], nil, 0, ErrTooLarge)
		return s.skip(id, part)
	}
	if !part.GetLast() {
		return got{}, nil
	}
	encoded := s.pieces[id]
	s.drop(id)
	return got{complete: true, encoded: encoded, wanted: true}, nil
}

// skip passes over a piece. What nobody waits for is read only where it is in one piece, so that it can be told.
func (s *Session) skip(id string, part *offrampv1.OrderResultPart) (got, error) {
	begun := s.skipping[id] || len(s.pieces[id]) > 0
	s.drop(id)
	switch {
	case part.GetLast() && !begun:
		return got{complete: true, encoded: part.GetData()}, nil
	case part.GetLast():
		delete(s.skipping, id)
		return got{complete: true}, nil
	}
	if s.skipping[id] = true; len(s.skipping) > maxSkipping {
		return got{}, errors.New("more results at once than an agent sends")
	}
	return got{}, nil
}

func (s *Session) drop(id string) {
	s.desk.pieces -= len(s.pieces[id])
	delete(s.pieces, id)
}

// waited reports whether a node's result is wanted here.
func (d *Desk) waited(node, id string) bool {
	e := d.orders[id]
	return e != nil && e.node == node && !e.over()
}

// finish ends an order with its whole result, or tells of one that nobody waits for.
func (d *Desk) finish(node, id string, came got) {
	result, err := decode(node, id, came.encoded)
	switch {
	case came.wanted:
		d.settle(node, id, result, len(came.encoded), err)
	case err == nil && !d.known(node, id):
		d.config.Unasked(node, result)
	}
}

// known reports whether the desk has the node's result already.
func (d *Desk) known(node, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.orders[id]
	return e != nil && e.node == node && e.result != nil
}

func (d *Desk) settle(node, id string, result *offrampv1.OrderResult, size int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.waited(node, id) {
		return
	}
	e := d.orders[id]
	if err == nil && result.GetKind() != e.order.GetKind() {
		err = fmt.Errorf("%w: it is of another kind", ErrUnreadable)
	}
	if err != nil {
		d.config.Log.Error("the result of an order cannot be used", "node", node, "order", id, "error", err)
		d.end(e, nil, 0, err)
		return
	}
	d.end(e, result, size, nil)
}

func decode(node, id string, encoded []byte) (*offrampv1.OrderResult, error) {
	result := &offrampv1.OrderResult{}
	if err := proto.Unmarshal(encoded, result); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if result.GetId() != id || result.GetNode() != node {
		return nil, fmt.Errorf("%w: it is of another order or node", ErrUnreadable)
	}
	if result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_UNSPECIFIED {
		return nil, fmt.Errorf("%w: it does not say how it ended", ErrUnreadable)
	}
	return result, nil
}
