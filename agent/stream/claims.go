package stream

import (
	"sync"
	"time"
)

// claims are the aggregators' processes to which this agent has a stream. A process that is reached by two addresses, of two families
// or through a virtual one, gets one stream: it would end the first for the second.
type claims struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

func newClaims() *claims { return &claims{held: map[string]chan struct{}{}} }

// take claims a process by the name in its Welcome. Where another stream has it, taken is closed when that has ended, and there is
// nothing to release. A process without a name is never another's.
func (c *claims) take(replica string) (release func(), taken <-chan struct{}) {
	if replica == "" {
		return func() {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended := c.held[replica]; ended != nil {
		return nil, ended
	}
	ended := make(chan struct{})
	c.held[replica] = ended
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.held, replica)
		close(ended)
	}), nil
}

// twinError ends an attempt at a process to which there is a stream already.
type twinError struct {
	replica string
	// ended is closed when that stream has ended.
	ended <-chan struct{}
}

func (*twinError) Error() string {
	return "this address leads to an aggregator that has a stream of this agent"
}

// recheckAfter is how long a peer stays back before it looks whether its address leads elsewhere now.
const recheckAfter = 5 * time.Minute
