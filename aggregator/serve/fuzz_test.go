package serve

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/orders"
	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Whatever bytes an agent sends after its first report: they are taken or refused with a status of agent.proto, nothing
// breaks, and what another node said stays.
func FuzzAgentMessage(f *testing.F) {
	for _, message := range []*v1.ConnectRequest{
		hello("a"), report(), report(setsSection(3), kernelSection("6.1.0")), heartbeat(), {},
		{Message: &v1.ConnectRequest_DetailPart{DetailPart: &v1.DetailPart{Id: 1, Items: []string{"x"}, Last: true}}},
		{Message: &v1.ConnectRequest_OrderUpdate{OrderUpdate: &v1.OrderUpdate{Id: "x"}}},
	} {
		encoded, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		l := &lab{}
		store := l.newStore()
		a := &agents{store: store, log: quiet()}
		other, _ := store.Join(hello("other").GetHello(), nil)
		if err := other.Report(report(setsSection(7)).GetReport()); err != nil {
			t.Fatal(err)
		}
		session, _ := store.Join(hello("a").GetHello(), nil)
		defer session.Leave()
		handleBytes(t, a, session, encoded)
		if got := store.Summary(1, "other"); got.GetInventory().GetIpsets() != 7 || !got.GetConnected() {
			t.Errorf("the other node changed: %v", got)
		}
		// What was stored can be read again.
		_, node := store.Node(1, "a")
		for _, section := range node.GetSections() {
			if err := facts.Check(section.GetKind(), section.GetStable()); err != nil {
				t.Errorf("stored, then refused: %v", err)
			}
		}
	})
}

// stillness is a stream that only has a context.
type stillness struct {
	grpc.BidiStreamingServer[v1.ConnectRequest, v1.ConnectResponse]
	ctx context.Context //nolint:containedctx // gRPC's streams have theirs too
}

func (s stillness) Context() context.Context { return s.ctx }

// nowhere is a stream that takes everything.
type nowhere struct{}

func (nowhere) Send(*v1.ConnectResponse) error { return nil }

func handleBytes(t *testing.T, a *agents, session *fleet.Session, encoded []byte) {
	t.Helper()
	message := &v1.ConnectRequest{}
	if err := newAgentCodec(nil).Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, message); err != nil {
		t.Fatalf("the codec fails: %v", err)
	}
	heard, err := orders.New(orders.Config{Log: quiet()}).Join("a", nowhere{})
	if err != nil {
		t.Fatal(err)
	}
	err = a.handle(&link{node: "a", orders: heard, stream: stillness{ctx: t.Context()}}, session, message)
	switch code := codeOf(ending(err)); code {
	case codes.OK, codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted:
	default:
		t.Errorf("%v ends with %v", err, code)
	}
}

// A token is what was made, or it is refused.
func FuzzToken(f *testing.F) {
	f.Add(makeToken("node-1"))
	f.Add("")
	f.Add("MTo")
	f.Add("MTpub2RlLTE=")
	f.Fuzz(func(t *testing.T, token string) {
		name, err := readToken(token)
		if err != nil {
			if codeOf(err) != codes.InvalidArgument {
				t.Errorf("status %v", err)
			}
			return
		}
		if token != "" && makeToken(name) != token {
			t.Errorf("%q reads as %q, which makes another token", token, name)
		}
	})
}

func TestTokenHidesNothingButTheName(t *testing.T) {
	long := strings.Repeat("a", 253)
	if name, err := readToken(makeToken(long)); err != nil || name != long {
		t.Errorf("got %q, %v", name, err)
	}
}
