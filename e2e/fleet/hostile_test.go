package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// agentStream is what an agent has, and what a liar has too.
type agentStream = grpc.BidiStreamingClient[offrampv1.ConnectRequest, offrampv1.ConnectResponse]

// connect makes a connection as an agent's.
func (s *stage) connect(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(s.tlsConfig())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *stage) stream(t *testing.T) agentStream {
	t.Helper()
	stream, err := offrampv1.NewAgentServiceClient(s.connect(t)).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// liar is the version that a lying agent says it has.
const liar = "liar"

func hello(node string, now time.Time) *offrampv1.ConnectRequest {
	return &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Hello{Hello: &offrampv1.Hello{
		Node: node, AgentVersion: liar, Instance: "x", Now: timestamppb.New(now),
	}}}
}

func report(sections ...*offrampv1.SectionReport) *offrampv1.ConnectRequest {
	return &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Report{Report: &offrampv1.Report{Sections: sections}}}
}

func beat(now time.Time) *offrampv1.ConnectRequest {
	read := &offrampv1.SectionVolatile{ReadAt: timestamppb.New(now)}
	kernel := &offrampv1.SectionHeartbeat{Kind: offrampv1.SectionKind_SECTION_KIND_KERNEL, Volatile: read}
	return &offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Heartbeat{Heartbeat: &offrampv1.Heartbeat{
		Now: timestamppb.New(now), Sections: []*offrampv1.SectionHeartbeat{kernel},
	}}}
}

// claim is a section that claims what no kernel can hold.
func claim(t *testing.T, kind offrampv1.SectionKind, content *offrampv1.SectionStable) *offrampv1.ConnectRequest {
	t.Helper()
	content.State = offrampv1.SectionState_SECTION_STATE_PRESENT
	encoded, err := proto.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return report(&offrampv1.SectionReport{Kind: kind, Stable: encoded})
}

func tenMillionSets(t *testing.T) *offrampv1.ConnectRequest {
	t.Helper()
	facts := &offrampv1.IpsetsFacts{Sets: 10_000_000}
	return claim(t, offrampv1.SectionKind_SECTION_KIND_IPSETS, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipsets{Ipsets: facts}})
}

// tenMillionItems is a list that fits in a message and would take a hundred times its size in memory.
func tenMillionItems(t *testing.T) *offrampv1.ConnectRequest {
	t.Helper()
	facts := &offrampv1.IpsetsFacts{Samples: make([]*offrampv1.Ipset, 500_000)}
	for i := range facts.GetSamples() {
		facts.Samples[i] = &offrampv1.Ipset{}
	}
	return claim(t, offrampv1.SectionKind_SECTION_KIND_IPSETS, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipsets{Ipsets: facts}})
}

// lie is what a client says, and the status that agent.proto promises it.
type lie struct {
	name string
	say  func(*testing.T) []*offrampv1.ConnectRequest
	want codes.Code
}

func lies() []lie {
	say := func(messages ...*offrampv1.ConnectRequest) func(*testing.T) []*offrampv1.ConnectRequest {
		return func(*testing.T) []*offrampv1.ConnectRequest { return messages }
	}
	first := hello("liar", time.Now())
	return []lie{
		{"10 million sets", func(t *testing.T) []*offrampv1.ConnectRequest {
			return []*offrampv1.ConnectRequest{first, tenMillionSets(t)}
		}, codes.InvalidArgument},
		{"half a million empty samples", func(t *testing.T) []*offrampv1.ConnectRequest {
			return []*offrampv1.ConnectRequest{first, tenMillionItems(t)}
		}, codes.InvalidArgument},
		{"20 MiB", say(first, report(&offrampv1.SectionReport{
			Kind: offrampv1.SectionKind_SECTION_KIND_KERNEL, Stable: make([]byte, 20<<20),
		})), codes.ResourceExhausted},
		{"a Report before Hello", say(report()), codes.FailedPrecondition},
		{"a heartbeat before the first Report", say(first, beat(time.Now())), codes.FailedPrecondition},
		{"Hello twice", say(first, report(), first), codes.FailedPrecondition},
		{"nothing in a message", say(first, &offrampv1.ConnectRequest{}), codes.InvalidArgument},
		{"a section twice", say(first, report(&offrampv1.SectionReport{Kind: 1}, &offrampv1.SectionReport{Kind: 1})), codes.InvalidArgument},
		{"a section that is no section", say(first, report(&offrampv1.SectionReport{
			Kind: offrampv1.SectionKind_SECTION_KIND_IPVS, Stable: bytes.Repeat([]byte{0xff}, 1000),
		})), codes.InvalidArgument},
		{"a node name that is none", say(hello("../../etc\x00", time.Now())), codes.InvalidArgument},
		{"a node name of 900 KiB", say(hello(string(bytes.Repeat([]byte("a"), 900<<10)), time.Now())), codes.InvalidArgument},
		{"a time that is none", say(&offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Hello{Hello: &offrampv1.Hello{
			Node: "liar", Now: &timestamppb.Timestamp{Seconds: 1 << 62, Nanos: -1},
		}}}), codes.InvalidArgument},
	}
}

// Clients that lie: each stream ends with its status, and no other node is touched. The name they give themselves is
// forgotten like every node that stays away.
func TestLies(t *testing.T) {
	s := setUp(t, soon)
	if s == nil {
		return
	}
	for _, lie := range lies() {
		t.Run(lie.name, func(t *testing.T) {
			if err := s.saying(t, lie.say(t)...); status.Code(err) != lie.want {
				t.Errorf("the stream ended with %v, want %v", err, lie.want)
			}
			s.othersStand(t, lie.name)
		})
	}
	t.Run("bytes that are no message", func(t *testing.T) {
		stream, err := s.connect(t).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			offrampv1.AgentService_Connect_FullMethodName, grpc.ForceCodec(rawCodec{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(random(t, 100_000)); err != nil {
			t.Fatal(err)
		}
		var answer []byte
		if err := stream.RecvMsg(&answer); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the stream ended with %v, want InvalidArgument", err)
		}
		s.othersStand(t, "bytes that are no message")
	})
	if took, wrong := s.untilRight(8 * time.Second); wrong != "" {
		t.Errorf("%s after the last lie the liar is still in the view: %s", took, wrong)
	}
	s.tearDown()
}

// saying says it all on one stream and returns how that ended.
func (s *stage) saying(t *testing.T, messages ...*offrampv1.ConnectRequest) error {
	t.Helper()
	stream := s.stream(t)
	for _, message := range messages {
		if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// othersStand holds that the real nodes are right within two heartbeats and the aggregator is no larger than it may be.
func (s *stage) othersStand(t *testing.T, after string) {
	t.Helper()
	s.change()
	_, wrong := s.until(twoHeartbeats, func() string { return s.wrongWith(nodes()...) })
	if wrong != "" {
		t.Errorf("two heartbeats after %s: %s", after, wrong)
	}
	if peak := s.aggregator.peak(t); peak > maxMemory {
		t.Errorf("the aggregator took %d MiB", peak>>20)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

var _ encoding.Codec = rawCodec{}

func (rawCodec) Marshal(v any) ([]byte, error) {
	data, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("not bytes but %T", v)
	}
	return data, nil
}

func (rawCodec) Unmarshal([]byte, any) error { return nil }

func (rawCodec) Name() string { return "proto" }

// 200 streams that say nothing, on ten connections: they are ended, and meanwhile everything goes on.
func TestSilentStreams(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	var all sync.WaitGroup
	ends := make(chan error, 200)
	for range 10 {
		client := offrampv1.NewAgentServiceClient(s.connect(t))
		for range 20 {
			all.Go(func() {
				stream, err := client.Connect(ctx)
				if err == nil {
					_, err = stream.Recv()
				}
				ends <- err
			})
		}
	}
	s.stands(t, "200 streams were opened")
	all.Wait()
	close(ends)
	for err := range ends {
		if status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
			t.Fatalf("a stream without a Hello ended with %v, want the aggregator's DeadlineExceeded", err)
		}
	}
	s.stands(t, "200 streams were ended")
	s.tearDown()
}

// One connection may have 32 calls open; the others wait, and nobody else with them.
func TestManyStreamsOnOneConnection(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	client := offrampv1.NewAgentServiceClient(s.connect(t))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if stream, err := client.Connect(ctx); err == nil {
				_, _ = stream.Recv()
			}
		})
	}
	s.stands(t, "200 streams were wanted on one connection")
	cancel()
	all.Wait()
	s.tearDown()
}
