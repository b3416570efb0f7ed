package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/leaktest"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kernel  = v1.SectionKind_SECTION_KIND_KERNEL
	sets    = v1.SectionKind_SECTION_KIND_IPSETS
	present = v1.SectionState_SECTION_STATE_PRESENT
	patient = 10 * time.Second
)

// node is a Source whose ipsets are counted by hand.
type node struct {
	mu    sync.Mutex
	sets  uint64
	scans int
	// hang makes scans wait for the end of their context.
	hang   bool
	list   func(context.Context, *v1.ListDigest) ([]string, error)
	detail func(context.Context, *v1.DetailRequest, func([]string) error) error
}

func (n *node) set(change func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func (n *node) Scan(ctx context.Context) *v1.NodeFacts {
	n.mu.Lock()
	n.scans++
	hang, count, at := n.hang, n.sets, int64(n.scans)
	n.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	return &v1.NodeFacts{Sections: []*v1.Section{
		{Kind: kernel, Volatile: readAt(at), Stable: &v1.SectionStable{State: present, Content: &v1.SectionStable_Kernel{
			Kernel: &v1.KernelFacts{Release: "6.1.0"}}}},
		{Kind: sets, Volatile: readAt(at), Stable: setsOf(count)},
	}}
}

func (n *node) List(ctx context.Context, wanted *v1.ListDigest) ([]string, error) {
	if n.list == nil {
		return nil, errors.New("no lists here")
	}
	return n.list(ctx, wanted)
}

func (n *node) Detail(ctx context.Context, wanted *v1.DetailRequest, emit func([]string) error) error {
	if n.detail == nil {
		return errors.New("no details here")
	}
	return n.detail(ctx, wanted, emit)
}

func readAt(at int64) *v1.SectionVolatile {
	return &v1.SectionVolatile{ReadAt: timestamppb.New(time.Unix(at, 0))}
}

func setsOf(count uint64) *v1.SectionStable {
	return &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipsets{Ipsets: &v1.IpsetsFacts{Sets: count}}}
}

// fake is an aggregator whose every word is the test's.
type fake struct {
	v1.UnimplementedAgentServiceServer
	streams chan *call
}

// call is one stream, handed to the test. It lasts until the test ends it with a status.
type call struct {
	t      *testing.T
	stream grpc.BidiStreamingServer[v1.ConnectRequest, v1.ConnectResponse]
	end    chan error
}

func (f *fake) Connect(stream grpc.BidiStreamingServer[v1.ConnectRequest, v1.ConnectResponse]) error {
	c := &call{stream: stream, end: make(chan error, 1)}
	select {
	case f.streams <- c:
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	select {
	case err := <-c.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

// next waits for the agent to open a stream.
func (f *fake) next(t *testing.T) *call {
	t.Helper()
	select {
	case c := <-f.streams:
		c.t = t
		return c
	case <-time.After(patient):
		t.Fatal("the agent opens no stream")
		return nil
	}
}

// recv waits for the next message of the agent.
func (c *call) recv() *v1.ConnectRequest {
	c.t.Helper()
	type result struct {
		message *v1.ConnectRequest
		err     error
	}
	got := make(chan result, 1)
	go func() {
		message, err := c.stream.Recv()
		got <- result{message, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			c.t.Fatalf("the agent's stream: %v", r.err)
		}
		return r.message
	case <-time.After(patient):
		c.t.Fatal("the agent says nothing")
		return nil
	}
}

// recvReport skips heartbeats.
func (c *call) recvReport() *v1.Report {
	c.t.Helper()
	for {
		message := c.recv()
		if message.GetHeartbeat() != nil {
			continue
		}
		if message.GetReport() == nil {
			c.t.Fatalf("got %v, want a report", message)
		}
		return message.GetReport()
	}
}

func (c *call) recvHeartbeat() *v1.Heartbeat {
	c.t.Helper()
	message := c.recv()
	if message.GetHeartbeat() == nil {
		c.t.Fatalf("got %v, want a heartbeat", message)
	}
	return message.GetHeartbeat()
}

func (c *call) send(message *v1.ConnectResponse) {
	c.t.Helper()
	if err := c.stream.Send(message); err != nil {
		c.t.Fatalf("send to the agent: %v", err)
	}
}

// welcome takes the Hello and answers it.
func (c *call) welcome(interval time.Duration, known ...*v1.SectionDigest) *v1.Hello {
	c.t.Helper()
	return c.welcomeTo("", interval, known...)
}

// welcomeTo says which process answers.
func (c *call) welcomeTo(replica string, interval time.Duration, known ...*v1.SectionDigest) *v1.Hello {
	c.t.Helper()
	hello := c.recv().GetHello()
	if hello == nil {
		c.t.Fatal("the first message is no Hello")
	}
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_Welcome{Welcome: &v1.Welcome{
		Known: known, HeartbeatInterval: durationpb.New(interval), Replica: replica,
	}}})
	return hello
}

// serveFake listens in memory and returns the option that leads agents there.
func serveFake(t *testing.T) (*fake, grpc.DialOption) {
	t.Helper()
	leaktest.Check(t)
	f := &fake{streams: make(chan *call)}
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	v1.RegisterAgentServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return f, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })
}

func testConfig(source Source, dial grpc.DialOption) Config {
	return Config{
		Addresses: []string{"192.0.2.1:8443"}, Credentials: insecure.NewCredentials(), Node: "node-1", AgentVersion: "v0.1.0",
		Source: source, ScanInterval: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler), DialOptions: []grpc.DialOption{dial},
		limits: limits{firstBackoff: 5 * time.Millisecond, maxBackoff: 20 * time.Millisecond, healthy: time.Second, welcome: patient, list: patient},
	}
}

// start runs an agent until the test ends, and wants it to end well.
func start(t *testing.T, config Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(patient):
				t.Error("Run does not end with its context")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func kindsOf(report *v1.Report) string {
	text := ""
	for _, section := range report.GetSections() {
		text += fmt.Sprint(int(section.GetKind()), " ")
	}
	return text
}
