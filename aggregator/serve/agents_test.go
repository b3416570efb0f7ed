package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestWelcome(t *testing.T) {
	l := startLab(t, short(), nil)
	section := kernelSection("6.1.0")
	l.report("a", section)
	c := l.connect()
	c.send(hello("a"))
	welcome := c.recv().GetWelcome()
	want := facts.Sum(section.GetStable())
	if len(welcome.GetKnown()) != 1 || !bytes.Equal(welcome.GetKnown()[0].GetDigest(), want[:]) {
		t.Errorf("known %v", welcome.GetKnown())
	}
	if welcome.GetHeartbeatInterval().AsDuration() != 100*time.Millisecond || welcome.GetAggregatorVersion() != "v0.1.0" {
		t.Errorf("welcome %v", welcome)
	}
	if got := welcome.GetReturnWithin().AsDuration(); got != 100*time.Millisecond/3 {
		t.Errorf("asked to return within %s", got)
	}
}

// The more nodes, the later they are to come back, but before those that were only cut off fall silent.
func TestReturnWithin(t *testing.T) {
	for nodes, want := range map[int]time.Duration{
		0: 20 * time.Second, 5_000: 20 * time.Second, 10_000: 40 * time.Second, 20_000: 80 * time.Second, 100_000: 2 * time.Minute,
	} {
		if got := returnWithin(nodes, time.Minute, 3*time.Minute); got != want {
			t.Errorf("%d nodes: within %s, want %s", nodes, got, want)
		}
	}
	if got := returnWithin(20_000, time.Minute, time.Minute); got != 40*time.Second {
		t.Errorf("where one missed heartbeat is silence: within %s", got)
	}
}

// Whatever one stream says wrong ends that stream with the status that agent.proto promises. The bystander stays.
func TestWrongMessages(t *testing.T) {
	invalid, order, exhausted := codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted
	part := func(id uint64, items ...string) *v1.ConnectRequest {
		return &v1.ConnectRequest{Message: &v1.ConnectRequest_DetailPart{DetailPart: &v1.DetailPart{Id: id, Items: items}}}
	}
	helloWith := func(change func(*v1.Hello)) *v1.ConnectRequest {
		message := hello("a")
		change(message.GetHello())
		return message
	}
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise)
	tests := map[string]struct {
		messages []*v1.ConnectRequest
		want     codes.Code
	}{
		"report before Hello":        {[]*v1.ConnectRequest{report()}, order},
		"heartbeat before Hello":     {[]*v1.ConnectRequest{heartbeat()}, order},
		"nothing we know first":      {[]*v1.ConnectRequest{{}}, invalid},
		"no node name":               {[]*v1.ConnectRequest{hello("")}, invalid},
		"node name with a path":      {[]*v1.ConnectRequest{hello("../../etc/passwd")}, invalid},
		"node name in upper case":    {[]*v1.ConnectRequest{hello("Node")}, invalid},
		"instance too long":          {[]*v1.ConnectRequest{helloWith(func(h *v1.Hello) { h.Instance = strings.Repeat("i", 65) })}, invalid},
		"version too long":           {[]*v1.ConnectRequest{helloWith(func(h *v1.Hello) { h.AgentVersion = strings.Repeat("v", 129) })}, invalid},
		"impossible clock":           {[]*v1.ConnectRequest{helloWith(func(h *v1.Hello) { h.Now = &timestamppb.Timestamp{Nanos: -1} })}, invalid},
		"Hello twice":                {[]*v1.ConnectRequest{hello("a"), report(), hello("a")}, order},
		"heartbeat before report":    {[]*v1.ConnectRequest{hello("a"), heartbeat()}, order},
		"detail before report":       {[]*v1.ConnectRequest{hello("a"), part(1)}, order},
		"detail nobody asked for":    {[]*v1.ConnectRequest{hello("a"), report(), part(1)}, order},
		"detail part too large":      {[]*v1.ConnectRequest{hello("a"), report(), part(1, strings.Repeat("x", maxPart+1))}, invalid},
		"unknown message later":      {[]*v1.ConnectRequest{hello("a"), report(), {}}, invalid},
		"10 million sets":            {[]*v1.ConnectRequest{hello("a"), report(setsSection(10_000_000))}, invalid},
		"garbage in a section":       {[]*v1.ConnectRequest{hello("a"), report(&v1.SectionReport{Kind: sets, Stable: noise[:100]})}, invalid},
		"another section's content":  {[]*v1.ConnectRequest{hello("a"), report(&v1.SectionReport{Kind: kernel, Stable: setsSection(1).GetStable()})}, invalid},
		"section without kind":       {[]*v1.ConnectRequest{hello("a"), report(&v1.SectionReport{Stable: setsSection(1).GetStable()})}, invalid},
		"section of 600 KiB":         {[]*v1.ConnectRequest{hello("a"), report(&v1.SectionReport{Kind: sets, Stable: noise[:600<<10]})}, invalid},
		"message over 1 MiB":         {[]*v1.ConnectRequest{hello("a"), report(&v1.SectionReport{Kind: sets, Stable: noise})}, exhausted},
		"first message over 1 MiB":   {[]*v1.ConnectRequest{report(&v1.SectionReport{Kind: sets, Stable: noise})}, exhausted},
		"heartbeat without kind":     {[]*v1.ConnectRequest{hello("a"), report(), {Message: &v1.ConnectRequest_Heartbeat{Heartbeat: &v1.Heartbeat{Sections: []*v1.SectionHeartbeat{{}}}}}}, invalid},
		"heartbeat, impossible time": {[]*v1.ConnectRequest{hello("a"), report(), {Message: &v1.ConnectRequest_Heartbeat{Heartbeat: &v1.Heartbeat{Now: &timestamppb.Timestamp{Seconds: 1 << 60}}}}}, invalid},
		"order update without id":    {[]*v1.ConnectRequest{hello("a"), report(), {Message: &v1.ConnectRequest_OrderUpdate{OrderUpdate: &v1.OrderUpdate{}}}}, invalid},
	}
	l := startLab(t, short(), nil)
	bystander := l.report("bystander", kernelSection("6.1.0"))
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := l.connect()
			for _, message := range tt.messages {
				c.send(message)
			}
			if reason := c.ends(tt.want); reason == "" {
				t.Error("no reason is given")
			}
		})
	}
	before := l.store.Summary(1, "bystander").GetLastSeen().AsTime()
	bystander.send(heartbeat())
	l.waitFor("the bystander's heartbeat", func() bool { return l.store.Summary(1, "bystander").GetLastSeen().AsTime().After(before) })
	if got := l.store.Summary(1, "a"); got.GetInventory().GetIpsets() != 0 {
		t.Errorf("something of what was refused is there: %v", got)
	}
	if l.store.Summary(1, "a").GetConnected() {
		t.Error("a stream that ended counts as connected")
	}
}

func TestRefusedReportLeavesWhatWasSaid(t *testing.T) {
	l := startLab(t, short(), nil)
	c := l.report("a", kernelSection("6.1.0"), setsSection(3))
	c.send(report(kernelSection("6.2.0"), setsSection(10_000_000)))
	if reason := c.ends(codes.InvalidArgument); !strings.Contains(reason, "10000000 sets") {
		t.Errorf("reason %q", reason)
	}
	if got := l.store.Summary(1, "a"); got.GetKernelRelease() != "6.1.0" || got.GetInventory().GetIpsets() != 3 {
		t.Errorf("got %v", got)
	}
}

// rawCodec sends bytes that are no message.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

func TestBytesThatAreNoMessage(t *testing.T) {
	l := startLab(t, short(), nil)
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	for name, garbage := range map[string][]byte{
		"ones":          bytes.Repeat([]byte{0xff}, 100),
		"cut short":     protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), make([]byte, 50))[:10],
		"not UTF-8":     {0x0a, 0x04, 0x0a, 0x02, 0xff, 0xfe},
		"deep nonsense": bytes.Repeat([]byte{0x0b}, 20000),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			stream, err := l.dial().NewStream(ctx, desc, v1.AgentService_Connect_FullMethodName, grpc.ForceCodec(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.SendMsg(garbage); err != nil {
				t.Fatal(err)
			}
			var answer []byte
			if err := stream.RecvMsg(&answer); codeOf(err) != codes.InvalidArgument {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Bytes on the port that are not even HTTP/2 close that connection and nothing else.
func TestGarbageOnThePort(t *testing.T) {
	l := startLab(t, short(), nil)
	bystander := l.report("bystander", kernelSection("6.1.0"))
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	for name, garbage := range map[string][]byte{
		"noise":           noise,
		"HTTP/1":          []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":             {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"preface, noise":  append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), noise...),
		"frame of 16 MiB": append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", l.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(patient))
			_, _ = conn.Write(garbage)
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("the connection stays open")
			}
		})
	}
	bystander.send(report(setsSection(5)))
	l.waitFor("the bystander's report", func() bool { return l.store.Summary(1, "bystander").GetInventory().GetIpsets() == 5 })
}

func TestSlowToSayHello(t *testing.T) {
	limits := short()
	limits.hello = 50 * time.Millisecond
	l := startLab(t, limits, nil)
	l.connect().ends(codes.DeadlineExceeded)
}

func TestSlowToReport(t *testing.T) {
	limits := short()
	limits.report = 50 * time.Millisecond
	l := startLab(t, limits, nil)
	l.join("a").ends(codes.DeadlineExceeded)
}

// A node is taken over by a Report. A Hello alone, of an agent that finds out that it is here already, harms nobody.
func TestTwoAgentsOfOneNode(t *testing.T) {
	l := startLab(t, short(), nil)
	first := l.report("a", kernelSection("6.1.0"))
	second := l.join("a")
	first.send(report(setsSection(1)))
	l.waitFor("the first agent's next report", func() bool { return l.store.Summary(1, "a").GetInventory().GetIpsets() == 1 })
	second.gone()
	first.send(report(setsSection(2)))
	l.waitFor("another one after the second has gone", func() bool { return l.store.Summary(1, "a").GetInventory().GetIpsets() == 2 })
	third := l.join("a")
	third.send(report(setsSection(3)))
	first.ends(codes.Aborted)
	l.waitFor("the third agent's report", func() bool { return l.store.Summary(1, "a").GetInventory().GetIpsets() == 3 })
	if !l.store.Summary(1, "a").GetConnected() {
		t.Error("the node counts as not connected")
	}
}

// A first Report leaves out what its Welcome named. Where another stream has said something else since, it would leave that for
// true: it is not taken, and the next Welcome names what is there.
func TestOvertakenByAnotherStream(t *testing.T) {
	l := startLab(t, short(), nil)
	first := l.report("a", setsSection(1))
	second := l.join("a")
	first.send(report(setsSection(2)))
	l.waitFor("the first agent's report", func() bool { return l.store.Summary(1, "a").GetInventory().GetIpsets() == 2 })
	second.send(report(kernelSection("6.1.0")))
	second.ends(codes.Unavailable)
	if got := l.store.Summary(1, "a"); got.GetKernelRelease() != "" || got.GetInventory().GetIpsets() != 2 {
		t.Errorf("the report was taken: %v", got)
	}
}

// An agent that is greeted and says no more is a node that nobody knows anything of, not none.
func TestGreetedNodeIsUnknown(t *testing.T) {
	l := startLab(t, short(), nil)
	l.join("a")
	if got := l.store.Summary(1, "a"); got.GetAssessment().GetReady() != v1.Verdict_VERDICT_UNKNOWN || got.GetConnected() {
		t.Errorf("got %v", got)
	}
}

// Every stream of one process is told the same name, that of the next process another.
func TestReplicaIsTheProcess(t *testing.T) {
	l := startLab(t, short(), nil)
	name := func() string {
		c := l.connect()
		c.send(hello("a"))
		return c.recv().GetWelcome().GetReplica()
	}
	one, two := name(), name()
	l.restart(l.store)
	three := name()
	if one == "" || len(one) > 64 || one != two || two == three {
		t.Errorf("replicas %q, %q and after a restart %q", one, two, three)
	}
}

// The price of a node: no goroutine of ours beside the one that gRPC runs the call in.
func TestGoroutinesPerAgent(t *testing.T) {
	l := startLab(t, short(), nil)
	conn := l.dial()
	before := countGoroutines(t, l, conn, 1)
	after := countGoroutines(t, l, conn, 11)
	// Ten more streams on one connection: a handler each on our side, and on the client's what gRPC makes for a stream.
	if each := float64(after-before) / 10; each > 2.5 {
		t.Errorf("%.1f goroutines per stream", each)
	}
}

// Headers beyond the limit end the call and leave the others alone.
func TestHugeHeaders(t *testing.T) {
	l := startLab(t, short(), nil)
	bystander := l.report("bystander", kernelSection("6.1.0"))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("y", 1<<20))
	stream, err := v1.NewAgentServiceClient(l.dial()).Connect(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil {
		t.Error("a header of 1 MiB was taken")
	}
	bystander.send(report(setsSection(6)))
	l.waitFor("the bystander's report", func() bool { return l.store.Summary(1, "bystander").GetInventory().GetIpsets() == 6 })
}
