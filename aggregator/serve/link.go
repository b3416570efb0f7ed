package serve

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	"offramp.dev/offramp/aggregator/orders"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// link is one agent's stream.
type link struct {
	*ender
	stream grpc.BidiStreamingServer[offrampv1.ConnectRequest, offrampv1.ConnectResponse]
	// node is set once, before anybody else knows the link.
	node string

	sending sync.Mutex

	details details
	// orders is what this stream says and hears of orders. It belongs to the goroutine of the stream.
	orders *orders.Session
}

func newLink(stream grpc.BidiStreamingServer[offrampv1.ConnectRequest, offrampv1.ConnectResponse]) *link {
	return &link{stream: stream, ender: enderOf(stream.Context())}
}

// Close ends the stream for a reason. It does not block.
func (l *link) Close(cause error) { l.end(cause) }

// within ends the stream with cause unless stop is called in time.
func (l *link) within(limit time.Duration, cause error) (stop func() bool) {
	return time.AfterFunc(limit, func() { l.end(cause) }).Stop
}

func (l *link) receive() (*offrampv1.ConnectRequest, error) {
	message, err := l.stream.Recv()
	if err == nil && message.GetMessage() == nil {
		return nil, errNoMessage
	}
	return message, err
}

// orderLimit is how long an agent may take to take an order.
const orderLimit = 10 * time.Second

// Send sends one message about an order.
func (l *link) Send(message *offrampv1.ConnectResponse) error { return l.send(message, orderLimit) }

// send sends one message. It blocks while the agent takes none, at most until the limit, which ends the stream.
func (l *link) send(message *offrampv1.ConnectResponse, limit time.Duration) error {
	stop := l.within(limit, errNotTaken)
	defer stop()
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.stream.Send(message)
}
