package orders

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Exit codes of orders, as those of the same commands on the node.
const (
	exitDone    = 0
	exitError   = 1
	exitRefused = 2
	exitRemains = 3
	exitUnknown = 4
)

// judge says how long an order may take, or why it is refused. The deadline is judged by the aggregator's own clock at both
// ends and by the time that went by here, since the node's clock may be off.
func (b *Book) judge(order *offrampv1.Order, arrived time.Time) (left time.Duration, refusal string) {
	left = order.GetDeadline().AsTime().Sub(order.GetSentAt().AsTime()) - time.Since(arrived)
	return left, b.refusal(order, left)
}

func (b *Book) refusal(order *offrampv1.Order, left time.Duration) string {
	switch {
	case b.config.Policy == Never:
		return "this agent takes no orders (--cleanup=never)"
	case orderform.Changes(order) && b.config.Policy != Apply:
		return "this agent makes plans and changes nothing when it is told to from afar (--cleanup=plan)"
	case left <= 0:
		return "its deadline is over"
	case b.running != nil:
		return fmt.Sprintf("another order is at work on this node: %s", b.running.id)
	case orderform.Changes(order) && b.disk == nil:
		return "this agent has no state folder (--state-dir), so that it could not tell afterwards what it did"
	case orderform.Changes(order) && b.config.Storage != nil:
		if err := b.config.Storage(b.config.StateDir); err != nil {
			return err.Error()
		}
	}
	return ""
}

// refuse answers an order with no, for good.
func (b *Book) refuse(r *record, why string) {
	b.noteRefusal(r.order, why)
	b.config.Record(Entry{Order: r.order, Event: "refused", Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, Why: why})
	b.finish(r, &offrampv1.OrderResult{
		Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, Message: why, ExitCode: exitRefused,
	})
}

// refuseUnrecorded answers an order with no on one stream and remembers nothing. It may be called from any goroutine.
func (b *Book) refuseUnrecorded(f *Feed, order *offrampv1.Order, why string) {
	b.noteRefusal(order, why)
	result := &offrampv1.OrderResult{
		Id: order.GetId(), Kind: order.GetKind(), Node: b.config.Node,
		Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, Message: why, ExitCode: exitRefused,
	}
	f.push(item{id: order.GetId(), unrecorded: true, load: func() ([]byte, error) { return proto.Marshal(result) }})
}

func (b *Book) noteRefusal(order *offrampv1.Order, why string) {
	b.config.Log.Warn("an order was refused", "order", shortened(order.GetId()), "kind", word(order), "caller", shortened(order.GetCaller()), "why", why)
}

// shortened keeps what others wrote from filling a log.
func shortened(text string) string { return fmt.Sprintf("%.128s", text) }

// makeRoom forgets what is old or too much, so that there is room for so many more.
func (b *Book) makeRoom(room int) {
	for _, r := range prune(b.records, b.config.Now(), b.config.limits, room) {
		if b.disk != nil {
			if err := b.disk.forget(r.id); err != nil {
				b.config.Log.Error("an old order cannot be removed from the disk", "order", r.id, "error", err)
				continue
			}
		}
		delete(b.records, r.id)
	}
}

// acknowledge notes that an aggregator holds a result.
func (b *Book) acknowledge(id string) {
	r := b.records[id]
	if r == nil || !r.answered || r.acknowledged {
		return
	}
	r.acknowledged = true
	if b.disk == nil {
		return
	}
	if err := b.disk.acknowledge(id); err != nil {
		b.config.Log.Error("an acknowledgement cannot be recorded", "order", id, "error", err)
	}
}

// word and outcome are words for the log.
func word(order *offrampv1.Order) string {
	return strings.ToLower(strings.TrimPrefix(order.GetKind().String(), "ORDER_KIND_"))
}

func outcome(result *offrampv1.OrderResult) string {
	return strings.ToLower(strings.TrimPrefix(result.GetOutcome().String(), "ORDER_OUTCOME_"))
}
