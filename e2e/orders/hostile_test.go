package orders

import (
	"encoding/hex"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// hostile is an aggregator whose every word is the test's.
type hostile struct {
	offrampv1.UnimplementedAgentServiceServer
	streams chan offrampv1.AgentService_ConnectServer
}

func (h *hostile) Connect(stream offrampv1.AgentService_ConnectServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_Welcome{Welcome: &offrampv1.Welcome{}}}); err != nil {
		return err
	}
	h.streams <- stream
	<-stream.Context().Done()
	return stream.Context().Err()
}

func serveHostile(t *testing.T) *hostile {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{streams: make(chan offrampv1.AgentService_ConnectServer)}
	server := grpc.NewServer()
	offrampv1.RegisterAgentServiceServer(server, h)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	return h
}

func (h *hostile) next(t *testing.T) offrampv1.AgentService_ConnectServer {
	t.Helper()
	select {
	case stream := <-h.streams:
		return stream
	case <-time.After(patient):
		t.Fatal("the agent does not come")
		return nil
	}
}

// order sends an order and waits for its whole result.
func order(t *testing.T, stream offrampv1.AgentService_ConnectServer, order *offrampv1.Order) *offrampv1.OrderResult {
	t.Helper()
	if err := stream.Send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_Order{Order: order}}); err != nil {
		t.Fatal(err)
	}
	var encoded []byte
	for {
		message, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		update := message.GetOrderUpdate()
		if update.GetId() != order.GetId() || update.GetResult() == nil {
			continue
		}
		encoded = append(encoded, update.GetResult().GetData()...)
		if !update.GetResult().GetLast() {
			continue
		}
		result := &offrampv1.OrderResult{}
		if err := proto.Unmarshal(encoded, result); err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// A hostile aggregator sends an order again when the node is dirty again, with the same digest: byte for byte, with a fresh
// deadline, on a new stream, and to the agent after a restart. It is not done again. With other content under the same id, or
// a mark of being forced, it is not done either.
func TestReplayedOrder(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	s.aggregator.kill()
	h := serveHostile(t)
	stream := h.next(t)
	digest, err := hex.DecodeString(s.digest())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	given := &offrampv1.Order{
		Id: id(500), Kind: offrampv1.OrderKind_ORDER_KIND_APPLY, Target: offrampv1.Target_TARGET_NFTABLES, PlanDigest: digest,
		SentAt: timestamppb.New(now), Deadline: timestamppb.New(now.Add(time.Minute)), Caller: "mallory",
	}
	first := order(t, stream, given)
	if first.GetOutcome() != offrampv1.OrderOutcome_ORDER_OUTCOME_DONE || len(s.leftovers()) != 0 {
		t.Fatalf("the first time: %v", first)
	}
	s.dirty()
	dirty := len(s.leftovers())
	again := func(what string, order *offrampv1.Order, got *offrampv1.OrderResult, same bool) {
		t.Helper()
		if same != proto.Equal(got, first) || !same && got.GetOutcome() != offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED {
			t.Errorf("%s: %v", what, got)
		}
		if len(s.leftovers()) != dirty || s.runs(order.GetId()) > 1 {
			t.Errorf("%s: it was done again", what)
		}
	}
	again("byte for byte", given, order(t, stream, given), true)
	fresh, _ := proto.Clone(given).(*offrampv1.Order)
	fresh.SentAt, fresh.Deadline = timestamppb.New(now.Add(time.Hour)), timestamppb.New(now.Add(90*time.Minute))
	again("with a fresh deadline", fresh, order(t, stream, fresh), true)
	other, _ := proto.Clone(given).(*offrampv1.Order)
	other.Target = offrampv1.Target_TARGET_IPTABLES
	again("with another target", other, order(t, stream, other), false)
	late, _ := proto.Clone(given).(*offrampv1.Order)
	late.Id, late.Deadline = id(501), late.GetSentAt()
	again("after its deadline", late, order(t, stream, late), false)
	s.agent.kill()
	s.startAgent()
	stream = h.next(t)
	again("after a restart of the agent", given, order(t, stream, given), true)
	// A restarted agent of another policy takes no new ones.
	s.agent.kill()
	s.startAgent("--cleanup", "plan")
	stream = h.next(t)
	planOnly, _ := proto.Clone(given).(*offrampv1.Order)
	planOnly.Id = id(502)
	again("under --cleanup=plan", planOnly, order(t, stream, planOnly), false)
}
