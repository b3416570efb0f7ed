package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Book knows the orders of this node. Use Open, and Run it: all that it remembers belongs to that one goroutine.
type Book struct {
	config Config
	disk   *disk
	inbox  chan func(context.Context)
	ended  chan ending

	records map[string]*record
	feeds   []*Feed
	// running is the order at work, nil when none is.
	running *record
	began   time.Time
	cancel  context.CancelFunc
}

// ending is what the work on the running order comes to.
type ending struct {
	result  *offrampv1.OrderResult
	stopped bool
}

// Open reads what was taken before. Orders that were interrupted then are answered now. It fails where the folder of a policy
// other than Never cannot be read: an agent that does not know what it did must not begin anew.
func Open(config Config) (*Book, error) {
	b := &Book{
		config: config.withDefaults(), records: map[string]*record{},
		inbox: make(chan func(context.Context), maxInbox), ended: make(chan ending, 1),
	}
	if b.config.Policy != Plan && b.config.Policy != Apply {
		b.config.Policy = Never
	}
	if b.config.Policy == Never || b.config.StateDir == "" {
		return b, nil
	}
	disk, err := openDisk(b.config.StateDir)
	if err != nil {
		return nil, err
	}
	b.disk = disk
	if err := b.remember(); err != nil {
		return nil, errors.Join(err, disk.close())
	}
	return b, nil
}

// remember reads what was taken before, and answers what was interrupted.
func (b *Book) remember() error {
	known, err := b.disk.load()
	if err != nil {
		return err
	}
	for _, r := range known {
		b.records[r.id] = r
	}
	b.makeRoom(0)
	for _, r := range b.records {
		if r.answered {
			continue
		}
		result := b.interrupted(r)
		b.config.Log.Warn("an order was interrupted", "order", r.id, "kind", word(r.order), "message", result.GetMessage())
		b.finish(r, result)
		b.config.Record(Entry{Order: r.order, Event: "ended", Outcome: result.GetOutcome(), Why: result.GetMessage()})
	}
	return nil
}

// interrupted is the answer to an order that was found without one.
func (b *Book) interrupted(r *record) *offrampv1.OrderResult {
	result := &offrampv1.OrderResult{Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_INTERRUPTED, ExitCode: exitUnknown}
	switch {
	case r.order == nil:
		result.Message = "the record of this order is damaged; see the journal on the node"
	case !r.begun:
		result.Outcome, result.ExitCode = offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, exitRefused
		result.Message = "it was refused, and the agent was stopped before it could say why"
	case !orderform.Changes(r.order):
		result.Message = "the agent was stopped while it planned; nothing was changed"
	case b.config.Interrupted == nil:
		result.Message = "the agent was stopped in the middle; see the journal on the node"
	default:
		result.Message, result.Cleanup = b.config.Interrupted(r.id)
	}
	return result
}

// Run works on orders until ctx ends. The order that is then at work is told to stop, and how it ended is recorded before Run
// returns. A Book runs once.
func (b *Book) Run(ctx context.Context) error {
	defer b.close()
	for {
		select {
		case <-ctx.Done():
			if b.running != nil {
				b.settle(<-b.ended)
			}
			return nil
		case letter := <-b.inbox:
			letter(ctx)
		case end := <-b.ended:
			b.settle(end)
		}
	}
}

func (b *Book) close() {
	if b.disk == nil {
		return
	}
	if err := b.disk.close(); err != nil {
		b.config.Log.Error("the folder of orders cannot be given back", "error", err)
	}
}

// offer puts something into the inbox, unless it is full.
func (b *Book) offer(letter func(context.Context)) bool {
	select {
	case b.inbox <- letter:
		return true
	default:
		return false
	}
}

// Feed begins what one stream says and hears. Results that no aggregator holds come first. It fails when ctx ends.
func (b *Book) Feed(ctx context.Context) (*Feed, error) {
	f := &Feed{book: b, news: make(chan struct{}, 1)}
	select {
	case b.inbox <- func(context.Context) { b.open(f) }:
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *Book) open(f *Feed) {
	open := []*Feed{f}
	for _, other := range b.feeds {
		if !other.isClosed() {
			open = append(open, other)
		}
	}
	b.feeds = open
	for _, r := range b.records {
		if r.answered && !r.acknowledged {
			f.push(item{id: r.id, load: r.load})
		}
	}
}

// take decides on an order that came on a stream.
func (b *Book) take(ctx context.Context, f *Feed, order *offrampv1.Order, arrived time.Time) {
	if err := checkForm(order); err != nil {
		b.refuseUnrecorded(f, order, err.Error())
		return
	}
	if known := b.records[order.GetId()]; known != nil {
		b.again(f, known, order)
		return
	}
	b.makeRoom(1)
	if len(b.records) >= b.config.limits.records {
		b.refuseUnrecorded(f, order, "this node took too many orders in the last hours to take another one")
		return
	}
	r := &record{id: order.GetId(), order: order, taken: b.config.Now(), askers: []*Feed{f}}
	left, refusal := b.judge(order, arrived)
	r.begun = refusal == ""
	if err := b.write(r); err != nil {
		b.config.Log.Error("an order cannot be recorded", "order", r.id, "error", err)
		b.refuseUnrecorded(f, order, "this node cannot record it: "+err.Error())
		return
	}
	b.records[r.id] = r
	if refusal != "" {
		b.refuse(r, refusal)
		return
	}
	b.begin(ctx, r, left)
}

func (b *Book) write(r *record) error {
	if b.disk == nil {
		return nil
	}
	return b.disk.take(r)
}

// again answers an order that was sent before: with its result, or with how far it is.
func (b *Book) again(f *Feed, known *record, order *offrampv1.Order) {
	switch {
	case known.order != nil && !orderform.Same(known.order, order):
		b.refuseUnrecorded(f, order, "this node knows another order of this id")
	case known.answered:
		f.push(item{id: known.id, load: known.load})
	default:
		known.askers = append(known.askers, f)
		if known.progress != nil {
			f.push(item{id: known.id, progress: known.progress})
		}
	}
}

// begin lets the work on an order begin.
func (b *Book) begin(ctx context.Context, r *record, left time.Duration) {
	b.config.Log.Info("an order begins", "order", r.id, "kind", word(r.order), "caller", r.order.GetCaller(), "allowed", left)
	b.config.Record(Entry{Order: r.order, Event: "accepted"})
	b.running, b.began = r, time.Now()
	limited, cancel := context.WithTimeout(ctx, left)
	b.cancel = cancel
	order, _ := proto.Clone(r.order).(*offrampv1.Order)
	go func() {
		result := b.config.Work(limited, order, func(step string, done, total uint64) { b.tell(r, step, done, total) })
		b.ended <- ending{result, ctx.Err() != nil}
	}()
	b.tell(r, "accepted", 0, 0)
}

// tell passes on how far an order has come. Progress that finds the inbox full is left out: more will come.
func (b *Book) tell(r *record, step string, done, total uint64) {
	progress := &offrampv1.OrderProgress{Step: step, Done: done, Total: total}
	b.offer(func(context.Context) {
		if r.answered {
			return
		}
		r.progress = progress
		for _, f := range r.askers {
			f.push(item{id: r.id, progress: progress})
		}
	})
}

// settle records how the running order ended, and sends it.
func (b *Book) settle(end ending) {
	r := b.running
	b.cancel()
	b.running, b.cancel = nil, nil
	result := end.result
	if result == nil {
		result = &offrampv1.OrderResult{Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_FAILED, Message: "there is no result", ExitCode: exitError}
	}
	if end.stopped && result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_FAILED {
		result.Outcome, result.ExitCode = offrampv1.OrderOutcome_ORDER_OUTCOME_INTERRUPTED, exitUnknown
		result.Message = "the agent was stopped in the middle: " + result.GetMessage()
	}
	b.finish(r, result)
	b.config.Record(Entry{Order: r.order, Event: "ended", Outcome: result.GetOutcome(), Why: result.GetMessage(), Took: time.Since(b.began)})
	b.config.Log.Info("an order ended", "order", r.id, "outcome", outcome(result), "message", result.GetMessage())
}

// finish names the result of an order, records it and sends it to whoever asked, or else to everybody.
func (b *Book) finish(r *record, result *offrampv1.OrderResult) {
	encoded := b.encode(r, result)
	r.answered, r.size, r.progress = true, int64(len(encoded)), nil
	r.load = func() ([]byte, error) { return encoded, nil }
	if b.disk != nil {
		if err := b.disk.answer(r.id, encoded); err != nil {
			b.config.Log.Error("the result of an order cannot be recorded; it is kept until the agent ends", "order", r.id, "error", err)
		} else {
			id, disk := r.id, b.disk
			r.load = func() ([]byte, error) { return disk.result(id) }
		}
	}
	b.announce(r)
}

func (b *Book) announce(r *record) {
	sent := false
	for _, f := range r.askers {
		if !f.isClosed() {
			f.push(item{id: r.id, load: r.load})
			sent = true
		}
	}
	r.askers = nil
	for _, f := range b.feeds {
		if !sent {
			f.push(item{id: r.id, load: r.load})
		}
	}
}

var errTooLarge = errors.New("the result is larger than may be sent; ask on the node itself")

// encode completes a result and encodes it. One that is too large keeps how it ended.
func (b *Book) encode(r *record, result *offrampv1.OrderResult) []byte {
	result.Id, result.Node, result.Kind = r.id, b.config.Node, r.order.GetKind()
	encoded, err := proto.Marshal(result)
	if err == nil && len(encoded) > orderform.MaxResult {
		err = errTooLarge
	}
	if err == nil {
		return encoded
	}
	short := &offrampv1.OrderResult{
		Id: r.id, Node: b.config.Node, Kind: result.GetKind(), Outcome: result.GetOutcome(), ExitCode: result.GetExitCode(),
		BeganAt: result.GetBeganAt(), EndedAt: result.GetEndedAt(), Message: fmt.Sprintf("%+.200q (%v)", result.GetMessage(), err),
	}
	// Every word in it is ASCII, checked, or the node's own name.
	encoded, _ = proto.Marshal(short)
	return encoded
}
