package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// maxPart bounds the items of one part of an answer, in bytes (agent.proto says 512 KiB; each item has a frame).
	maxPart = 500 << 10
	// maxItems bounds them by number, for the frames of very short ones.
	maxItems = 32 << 10
	// maxQuestions may wait for their answer on one stream.
	maxQuestions = 16
	// maxAnswered is how many orders are remembered as answered.
	maxAnswered = 4096
)

// errUnknownQuestion answers a question that this version does not know.
var errUnknownQuestion = errors.New("this agent does not know what is asked for")

// ask puts a question into the queue. A full one is answered at once: the aggregator asks for too much.
func (c *conversation) ask(ctx context.Context, request *offrampv1.DetailRequest) error {
	select {
	case c.questions <- request:
		return nil
	default:
		return c.put(ctx, part(request.GetId(), nil, true, "too many questions at once"))
	}
}

// answerQuestions reads lists, one after the other, beside reports and heartbeats.
func (c *conversation) answerQuestions(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case request := <-c.questions:
			if err := c.answer(ctx, request); err != nil {
				return err
			}
		}
	}
}

func (c *conversation) answer(ctx context.Context, request *offrampv1.DetailRequest) error {
	items, err := c.list(ctx, request.GetList())
	if err != nil {
		return c.put(ctx, part(request.GetId(), nil, true, err.Error()))
	}
	for {
		n := partSize(items)
		last := n == len(items)
		if err := c.put(ctx, part(request.GetId(), items[:n], last, "")); err != nil || last {
			return err
		}
		items = items[n:]
	}
}

func (c *conversation) list(ctx context.Context, wanted *offrampv1.ListDigest) ([]string, error) {
	if wanted == nil {
		return nil, errUnknownQuestion
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.limits.list)
	defer cancel()
	return c.config.Source.List(ctx, wanted)
}

// partSize returns how many of the items fit into a part; at least one of what is there.
func partSize(items []string) int {
	bytes := 0
	for i, item := range items {
		if bytes += len(item); i > 0 && (bytes > maxPart || i >= maxItems) {
			return i
		}
	}
	return len(items)
}

func part(id uint64, items []string, last bool, failed string) *offrampv1.ConnectRequest {
	return &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_DetailPart{
		DetailPart: &offrampv1.DetailPart{Id: id, Items: items, Last: last, Error: failed},
	}}
}

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
