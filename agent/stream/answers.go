package stream

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxAnswered is how many orders are remembered as answered.
const maxAnswered = 4096

// refuse answers an order, once.
func (c *conversation) refuse(ctx context.Context, order *offrampv1.Order) error {
	if !c.orders.first(order.GetId()) {
		return nil
	}
	c.log.Warn("an order was refused", "order", order.GetId(), "kind", order.GetKind().String(), "caller", order.GetCaller())
	result, err := proto.Marshal(&offrampv1.OrderResult{
		Id: order.GetId(), Kind: order.GetKind(), Node: c.config.Node,
		Outcome: offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED, Message: "this agent takes no orders",
	})
	if err != nil {
		return fmt.Errorf("encode the answer to order %s: %w", order.GetId(), err)
	}
	return c.put(ctx, &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_OrderUpdate{OrderUpdate: &offrampv1.OrderUpdate{
		Id: order.GetId(), Update: &offrampv1.OrderUpdate_Result{Result: &offrampv1.OrderResultPart{Data: result, Last: true}},
	}}})
}

// answered remembers the orders that were answered, the newest of them, over all streams.
type answered struct {
	mu    sync.Mutex
	seen  map[string]bool
	order []string
}

func newAnswered() *answered { return &answered{seen: map[string]bool{}} }

// first reports whether the id was not seen before, and remembers it.
func (a *answered) first(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[id] {
		return false
	}
	a.seen[id] = true
	a.order = append(a.order, id)
	if len(a.order) > maxAnswered {
		delete(a.seen, a.order[0])
		a.order = a.order[1:]
	}
	return true
}
