package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// An aggregator that names no sensible interval gets the default one.
const (
	defaultHeartbeat = time.Minute
	minHeartbeat     = 100 * time.Millisecond
	maxHeartbeat     = time.Hour
	// maxReturn bounds the time within which an aggregator may ask an agent to come back.
	maxReturn = 5 * time.Minute
	// maxReplica bounds the name of the process in a Welcome (agent.proto), which is kept.
	maxReplica = 64
)

// errNoWelcome ends an attempt at an aggregator that says nothing.
var errNoWelcome = errors.New("the aggregator did not say Welcome in time")

// open says Hello and waits for the Welcome, for as long as the limits allow. cancel ends ctx.
func (p *peer) open(ctx context.Context, cancel context.CancelCauseFunc, client offrampv1.AgentServiceClient) (*conversation, error) {
	late := time.AfterFunc(p.config.limits.welcome, func() { cancel(errNoWelcome) })
	defer late.Stop()
	c, err := p.greet(ctx, client)
	if errors.Is(context.Cause(ctx), errNoWelcome) {
		return nil, errNoWelcome
	}
	return c, err
}

func (p *peer) greet(ctx context.Context, client offrampv1.AgentServiceClient) (*conversation, error) {
	stream, err := client.Connect(ctx)
	if err != nil {
		return nil, err
	}
	hello := &offrampv1.Hello{
		Node: p.config.Node, AgentVersion: p.config.AgentVersion, Instance: p.instance, Now: timestamppb.New(p.config.Now()),
	}
	// A failed Send says only EOF; Recv tells why.
	if err := stream.Send(&offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	message, err := stream.Recv()
	if err != nil {
		return nil, closed(err)
	}
	welcome := message.GetWelcome()
	if welcome == nil {
		return nil, errors.New("the aggregator does not begin with a Welcome")
	}
	if len(welcome.GetReplica()) > maxReplica {
		return nil, fmt.Errorf("the aggregator's Welcome names its process by more than %d bytes", maxReplica)
	}
	return &conversation{
		peer: p, stream: stream, welcome: welcome, interval: heartbeatInterval(welcome), has: known(welcome),
		outbox: make(chan *offrampv1.ConnectRequest), questions: make(chan *question, maxQuestions),
	}, nil
}

// heartbeatInterval is what the Welcome asks for, when that makes sense.
func heartbeatInterval(welcome *offrampv1.Welcome) time.Duration {
	asked := welcome.GetHeartbeatInterval()
	if asked == nil || asked.AsDuration() <= 0 {
		return defaultHeartbeat
	}
	return min(max(asked.AsDuration(), minHeartbeat), maxHeartbeat)
}

// returnWithin is the time that the Welcome asks to come back within, or else what is usual.
func returnWithin(welcome *offrampv1.Welcome, usual time.Duration) time.Duration {
	asked := welcome.GetReturnWithin()
	if asked == nil || asked.AsDuration() <= 0 {
		return usual
	}
	return min(asked.AsDuration(), maxReturn)
}
