package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// maxPart bounds the items of one part of an answer, in bytes (agent.proto says 512 KiB; each item has a frame).
	maxPart = 500 << 10
	// maxItems bounds them by number, for the frames of very short ones.
	maxItems = 32 << 10
	// maxQuestions may wait for their answer on one stream.
	maxQuestions = 16
	// maxAnswer bounds one whole answer, in bytes: the members of a full set take 5 MB.
	maxAnswer = 16 << 20
	// maxReason bounds why an answer is not complete, in bytes.
	maxReason = 1024
)

// Why an answer ends before it is complete.
var (
	errUnknownQuestion  = errors.New("this agent does not know what is asked for")
	errTooManyQuestions = errors.New("too many questions at once")
	errCalledOff        = errors.New("called off")
	errTooLarge         = errors.New("the answer is larger than may be sent: the rest is left out")
	errNotText          = errors.New("an item cannot be sent: it is too long, or not UTF-8")
)

// question is a request that waits for its answer, or gets it.
type question struct {
	request *offrampv1.DetailRequest
	// calledOff and cancel belong to pending.mu; cancel is nil until the answer begins.
	calledOff bool
	cancel    context.CancelCauseFunc
}

// pending are the questions of one stream that are not answered yet, by their id.
type pending struct {
	mu  sync.Mutex
	all map[uint64]*question
}

func (p *pending) add(request *offrampv1.DetailRequest) *question {
	q := &question{request: request}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[uint64]*question{}
	}
	p.all[request.GetId()] = q
	return q
}

// begin takes what stops the answer from now on, and stops it at once where the question was called off before.
func (p *pending) begin(q *question, cancel context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.cancel = cancel
	if q.calledOff {
		cancel(errCalledOff)
	}
}

func (p *pending) done(q *question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[q.request.GetId()] == q {
		delete(p.all, q.request.GetId())
	}
}

// callOff stops an answer that nobody waits for any more, whether it has begun or not.
func (p *pending) callOff(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.all[id]
	if q == nil {
		return
	}
	q.calledOff = true
	if q.cancel != nil {
		q.cancel(errCalledOff)
	}
}

// ask puts a question into the queue. A full one is answered at once: the aggregator asks for too much.
func (c *conversation) ask(ctx context.Context, request *offrampv1.DetailRequest) error {
	q := c.pending.add(request)
	select {
	case c.questions <- q:
		return nil
	default:
		c.pending.done(q)
		return c.put(ctx, part(request.GetId(), nil, true, errTooManyQuestions))
	}
}

// answerQuestions answers one after the other, beside reports and heartbeats.
func (c *conversation) answerQuestions(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case q := <-c.questions:
			err := c.answer(ctx, q)
			c.pending.done(q)
			if err != nil {
				return err
			}
		}
	}
}

// answer sends the parts as they are read, and in any case a last one. It waits for the aggregator to take each, no longer
// than the whole may take.
func (c *conversation) answer(ctx context.Context, q *question) error {
	stoppable, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.pending.begin(q, stop)
	limited, cancel := context.WithTimeoutCause(stoppable, c.config.limits.answer,
		fmt.Errorf("it was not read and sent within %v", c.config.limits.answer))
	defer cancel()
	out := &outgoing{id: q.request.GetId(), put: func(message *offrampv1.ConnectRequest) error { return c.put(limited, message) }}
	err := c.read(limited, q.request, out)
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.put(ctx, part(out.id, out.held, true, err))
}

// read hands what was asked for to out.
func (c *conversation) read(ctx context.Context, request *offrampv1.DetailRequest, out *outgoing) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch wanted := request.GetDetail().(type) {
	case *offrampv1.DetailRequest_List:
		ctx, cancel := context.WithTimeout(ctx, c.config.limits.list)
		defer cancel()
		items, err := c.config.Source.List(ctx, wanted.List)
		return errors.Join(err, out.add(items))
	case *offrampv1.DetailRequest_Service, *offrampv1.DetailRequest_Ipset, *offrampv1.DetailRequest_Chain:
		return c.config.Source.Detail(ctx, request, out.add)
	default:
		return errUnknownQuestion
	}
}

// outgoing cuts an answer into parts. Not for concurrent use.
type outgoing struct {
	id  uint64
	put func(*offrampv1.ConnectRequest) error
	// held are items that may be the last ones: fewer than a part holds.
	held      []string
	heldBytes int
	bytes     int
}

// add takes items, and sends what makes a full part.
func (o *outgoing) add(items []string) error {
	for _, item := range items {
		if len(item) > maxPart || !utf8.ValidString(item) {
			return errNotText
		}
		if o.bytes += len(item); o.bytes > maxAnswer {
			return errTooLarge
		}
		if len(o.held) > 0 && (o.heldBytes+len(item) > maxPart || len(o.held) == maxItems) {
			if err := o.put(part(o.id, o.held, false, nil)); err != nil {
				return err
			}
			o.held, o.heldBytes = nil, 0
		}
		o.held, o.heldBytes = append(o.held, item), o.heldBytes+len(item)
	}
	return nil
}

func part(id uint64, items []string, last bool, failed error) *offrampv1.ConnectRequest {
	sent := &offrampv1.DetailPart{Id: id, Items: items, Last: last}
	if failed != nil {
		reason := failed.Error()
		sent.Error = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "\uFFFD")
	}
	return &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_DetailPart{DetailPart: sent}}
}
