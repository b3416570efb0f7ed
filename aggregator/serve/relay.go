package serve

import (
	"context"
	"errors"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// relay is an answer that is passed on as it comes in.
//
// An agent's stream is read by one goroutine, for reports and heartbeats as well. Where the reader of an answer is slow, that
// goroutine waits, which holds the agent back too (HTTP/2 takes no more from it), but only for patience over the whole
// answer: well below what makes a node count as silent. Then the answer is given up and not the node.
type relay struct {
	// parts holds what was not taken yet. It is closed after the last part, and after failed was set.
	parts chan *offrampv1.DetailPart
	// gone is closed when nobody takes parts any more.
	gone     chan struct{}
	patience time.Duration
	// end ends the call of whoever asked, which may wait in Send.
	end    func(error)
	bytes  int
	over   bool
	failed error
}

// heldParts of one answer may wait to be taken, beside the one that is being taken and the one that has just come.
const heldParts = 2

// Why an answer is given up.
var (
	errSlowReader  = errors.New("the answer was not taken in time: the rest is left out")
	errLargeAnswer = errors.New("the node sends more than an answer may be: the rest is left out")
)

func newRelay(patience time.Duration, end func(error)) *relay {
	return &relay{parts: make(chan *offrampv1.DetailPart, heldParts), gone: make(chan struct{}), patience: patience, end: end}
}

// pass hands a part on. True when it was the last one. Only for the goroutine that reads the agent's stream, whose context
// ctx is. What comes after an answer was given up is dropped.
func (r *relay) pass(ctx context.Context, part *offrampv1.DetailPart, size int) (complete bool) {
	last := part.GetLast() || part.GetError() != ""
	if r.over {
		return last
	}
	if r.bytes += size; r.bytes > maxAnswer || len(part.GetItems()) > maxPartItems {
		return r.giveUp(errLargeAnswer)
	}
	began := time.Now()
	late := time.NewTimer(r.patience)
	defer late.Stop()
	select {
	case r.parts <- part:
	case <-r.gone:
		return last
	case <-ctx.Done():
		return r.giveUp(context.Cause(ctx))
	case <-late.C:
		return r.giveUp(errSlowReader)
	}
	r.patience -= time.Since(began)
	if last {
		r.over = true
		close(r.parts)
	}
	return last
}

// giveUp ends an answer that is not complete. The agent is told by whoever asked.
func (r *relay) giveUp(failed error) (complete bool) {
	r.failed, r.over = failed, true
	close(r.parts)
	r.end(broken(failed))
	return false
}
