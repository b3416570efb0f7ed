package serve

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/orders"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// agents is AgentService.
type agents struct {
	offrampv1.UnimplementedAgentServiceServer

	store   *fleet.Store
	version string
	// replica names this process (agent.proto).
	replica  string
	timeouts timeouts
	streams  *streams
	desk     *orders.Desk
	crew     *crew
	log      *slog.Logger
}

// Connect serves one agent, in the goroutine that gRPC made for it and without another.
func (a *agents) Connect(stream grpc.BidiStreamingServer[offrampv1.ConnectRequest, offrampv1.ConnectResponse]) error {
	l := newLink(stream)
	defer a.streams.add(l.ender)()
	err := l.reason(a.converse(l))
	a.logEnd(stream.Context(), l, err)
	return err
}

// converse holds the order of agent.proto: Hello, Welcome, first Report, then whatever comes. The node is the stream's from the
// first Report on, not from Hello: an agent that reads in the Welcome that it is here already goes away without one.
func (a *agents) converse(l *link) error {
	hello, err := a.hello(l)
	if err != nil {
		return err
	}
	session, err := a.begin(l, hello)
	if err != nil {
		return err
	}
	defer session.Leave()
	if l.orders, err = a.desk.Join(l.node, l); err != nil {
		return err
	}
	defer l.orders.Close()
	for {
		message, err := l.receive()
		if err != nil {
			return err
		}
		if err := a.handle(l, session, message); err != nil {
			return err
		}
	}
}

func (a *agents) hello(l *link) (*offrampv1.Hello, error) {
	defer l.within(a.timeouts.hello, errNoHello)()
	message, err := l.receive()
	if err != nil {
		return nil, err
	}
	hello := message.GetHello()
	if hello == nil {
		return nil, outOfOrder("%s before Hello", name(message))
	}
	if err := checkHello(hello); err != nil {
		return nil, err
	}
	l.node = hello.GetNode()
	return hello, nil
}

func checkHello(hello *offrampv1.Hello) error {
	if err := facts.CheckNodeName(hello.GetNode()); err != nil {
		return err
	}
	switch {
	case len(hello.GetAgentVersion()) > maxVersion:
		return fmt.Errorf("agent_version has %d bytes, more than %d", len(hello.GetAgentVersion()), maxVersion)
	case len(hello.GetInstance()) > maxInstance:
		return fmt.Errorf("instance has %d bytes, more than %d", len(hello.GetInstance()), maxInstance)
	case hello.GetNow() != nil:
		return hello.GetNow().CheckValid()
	default:
		return nil
	}
}

// begin sends the Welcome, waits for the first Report and makes the node the stream's.
func (a *agents) begin(l *link, hello *offrampv1.Hello) (*fleet.Session, error) {
	defer l.within(a.timeouts.report, errNoReport)()
	known := a.store.Greet(hello)
	welcome := &offrampv1.Welcome{
		Known: known, AggregatorVersion: a.version, Replica: a.replica,
		HeartbeatInterval: durationpb.New(a.store.HeartbeatInterval()),
		ReturnWithin:      durationpb.New(returnWithin(a.store.Expected(), a.store.HeartbeatInterval(), a.store.Silence())),
	}
	if err := l.send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_Welcome{Welcome: welcome}}, a.timeouts.report); err != nil {
		return nil, err
	}
	message, err := l.receive()
	if err != nil {
		return nil, err
	}
	if message.GetReport() == nil {
		return nil, outOfOrder("%s before the first Report", name(message))
	}
	return a.own(l, hello, known, message.GetReport())
}

// returnRate is how many agents a second come back after a restart: an arrival is two milliseconds of one processor.
const returnRate = 250

// returnWithin is the time within which the agents of a fleet are to come back: not so late that nodes which were only cut off
// fall silent.
func returnWithin(nodes int, interval, silence time.Duration) time.Duration {
	return min(max(time.Duration(nodes)*time.Second/returnRate, interval/3), silence*2/3)
}

// own takes the node over with a first Report, which leaves out what the Welcome named.
func (a *agents) own(l *link, hello *offrampv1.Hello, welcomed []*offrampv1.SectionDigest, first *offrampv1.Report) (*fleet.Session, error) {
	session, known := a.store.Join(hello, l)
	err := errOvertaken
	if slices.EqualFunc(welcomed, known, sameDigest) {
		err = a.report(session, first)
	}
	if err != nil {
		session.Leave()
		return nil, err
	}
	return session, nil
}

func sameDigest(a, b *offrampv1.SectionDigest) bool {
	return a.GetKind() == b.GetKind() && bytes.Equal(a.GetDigest(), b.GetDigest())
}

func (a *agents) handle(l *link, session *fleet.Session, message *offrampv1.ConnectRequest) error {
	switch body := message.GetMessage().(type) {
	case *offrampv1.ConnectRequest_Report:
		return a.report(session, body.Report)
	case *offrampv1.ConnectRequest_Heartbeat:
		return a.heartbeat(session, body.Heartbeat)
	case *offrampv1.ConnectRequest_DetailPart:
		return l.details.take(l.stream.Context(), body.DetailPart)
	case *offrampv1.ConnectRequest_OrderUpdate:
		return l.orders.Update(body.OrderUpdate)
	case *offrampv1.ConnectRequest_Hello:
		return outOfOrder("a second Hello")
	default:
		return errNoMessage
	}
}

func (a *agents) heartbeat(session *fleet.Session, heartbeat *offrampv1.Heartbeat) error {
	if now := heartbeat.GetNow(); now != nil {
		if err := now.CheckValid(); err != nil {
			return fmt.Errorf("the clock of a heartbeat: %w", err)
		}
	}
	var err error
	a.crew.do(func() { err = session.Heartbeat(heartbeat) })
	return err
}

func (a *agents) report(session *fleet.Session, report *offrampv1.Report) error {
	var err error
	a.crew.do(func() { err = session.Report(report) })
	return err
}

// logEnd tells of streams that ended for a reason; agents that come and go are no news.
func (a *agents) logEnd(ctx context.Context, l *link, err error) {
	level := slog.LevelWarn
	switch status.Code(err) {
	case codes.OK, codes.Canceled, codes.Unavailable:
		level = slog.LevelDebug
	}
	attributes := []any{"node", l.node, "status", status.Code(err).String(), "reason", status.Convert(err).Message()}
	if from, ok := peer.FromContext(ctx); ok {
		attributes = append(attributes, "peer", from.Addr.String())
	}
	a.log.Log(ctx, level, "agent stream ended", attributes...)
}

// name says what kind of message it is, for people.
func name(message *offrampv1.ConnectRequest) string {
	switch message.GetMessage().(type) {
	case *offrampv1.ConnectRequest_Hello:
		return "Hello"
	case *offrampv1.ConnectRequest_Report:
		return "Report"
	case *offrampv1.ConnectRequest_Heartbeat:
		return "Heartbeat"
	case *offrampv1.ConnectRequest_DetailPart:
		return "DetailPart"
	case *offrampv1.ConnectRequest_OrderUpdate:
		return "OrderUpdate"
	default:
		return "an unknown message"
	}
}
