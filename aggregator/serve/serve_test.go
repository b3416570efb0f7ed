package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/leaktest"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	kernel  = v1.SectionKind_SECTION_KIND_KERNEL
	sets    = v1.SectionKind_SECTION_KIND_IPSETS
	ipvs    = v1.SectionKind_SECTION_KIND_IPVS
	present = v1.SectionState_SECTION_STATE_PRESENT
	patient = 10 * time.Second
)

// lab is a running aggregator on a loopback port.
type lab struct {
	t       *testing.T
	store   *fleet.Store
	address string
	client  v1.FleetServiceClient
	conn    *grpc.ClientConn
	stop    func()
}

func (l *lab) assess(node *v1.NodeFacts, target v1.Target) *v1.Assessment {
	ready := v1.Verdict_VERDICT_READY
	if facts.Find(node, sets).GetStable().GetIpsets().GetSets() > 0 {
		ready = v1.Verdict_VERDICT_BLOCKED
	}
	return &v1.Assessment{Target: target, Ready: ready, Verify: ready, Phase: v1.Phase_PHASE_DONE}
}

func short() timeouts {
	return timeouts{hello: patient, report: patient, list: patient, drain: 2 * time.Second, detail: patient, slowReader: patient}
}

// startLab serves until the test ends, or until stop.
func startLab(t *testing.T, limits timeouts, change func(*Config)) *lab {
	t.Helper()
	leaktest.Check(t)
	l := &lab{t: t}
	l.store = l.newStore()
	config := Config{Store: l.store, Version: "v0.1.0", Log: quiet()}
	if change != nil {
		change(&config)
	}
	l.listen(newServer(config, limits), "127.0.0.1:0")
	conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	l.conn, l.client = conn, v1.NewFleetServiceClient(conn)
	t.Cleanup(func() { _ = conn.Close() })
	return l
}

func (l *lab) listen(server *Server, address string) {
	l.t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	var once sync.Once
	l.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					l.t.Errorf("Serve: %v", err)
				}
			case <-time.After(patient):
				l.t.Error("Serve does not end")
			}
		})
	}
	l.t.Cleanup(l.stop)
}

// restart serves on the same port again, as another process would; the store is what that process knows.
func (l *lab) restart(store *fleet.Store) {
	l.t.Helper()
	l.stop()
	l.store = store
	l.listen(newServer(Config{Store: store, Version: "v0.1.1", Log: quiet()}, short()), l.address)
}

func (l *lab) newStore() *fleet.Store {
	return fleet.New(fleet.Config{Assess: l.assess, HeartbeatInterval: 100 * time.Millisecond, Log: quiet()})
}

// dial opens a connection of its own, as every agent does.
func (l *lab) dial() *grpc.ClientConn {
	l.t.Helper()
	conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// caller is a hand-driven agent.
type caller struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[v1.ConnectRequest, v1.ConnectResponse]
	cancel func()
}

// gone ends the stream as an agent does that goes away, and waits until that is known here.
func (c *caller) gone() {
	c.t.Helper()
	c.cancel()
	c.ends(codes.Canceled)
}

func (l *lab) connect() *caller {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l.t.Cleanup(cancel)
	stream, err := v1.NewAgentServiceClient(l.dial()).Connect(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return &caller{t: l.t, stream: stream, cancel: cancel}
}

// join is a hand-driven agent that said Hello and was welcomed.
func (l *lab) join(node string) *caller {
	l.t.Helper()
	c := l.connect()
	c.send(hello(node))
	if c.recv().GetWelcome() == nil {
		l.t.Fatal("no Welcome")
	}
	return c
}

// report is a hand-driven agent that sent its first report.
func (l *lab) report(node string, sections ...*v1.SectionReport) *caller {
	l.t.Helper()
	c := l.join(node)
	c.send(report(sections...))
	l.waitFor("the report of "+node, func() bool { return l.store.Summary(1, node).GetLastSeen() != nil })
	return c
}

func (l *lab) waitFor(what string, happens func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(patient); !happens(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s does not come", what)
		}
	}
}

func (c *caller) send(message *v1.ConnectRequest) {
	c.t.Helper()
	// When the stream has ended, recv tells why.
	_ = c.stream.Send(message)
}

func (c *caller) recv() *v1.ConnectResponse {
	c.t.Helper()
	message, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("the stream ended: %v", err)
	}
	return message
}

// ends waits for the end of the stream and wants a status.
func (c *caller) ends(want codes.Code) string {
	c.t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := c.stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if status.Code(err) != want {
			c.t.Errorf("the stream ended with %v, want %v", err, want)
		}
		return status.Convert(err).Message()
	case <-time.After(patient):
		c.t.Fatal("the stream does not end")
		return ""
	}
}

func hello(node string) *v1.ConnectRequest {
	return &v1.ConnectRequest{Message: &v1.ConnectRequest_Hello{Hello: &v1.Hello{Node: node, AgentVersion: "v0.1.0", Instance: "i"}}}
}

func report(sections ...*v1.SectionReport) *v1.ConnectRequest {
	return &v1.ConnectRequest{Message: &v1.ConnectRequest_Report{Report: &v1.Report{Sections: sections}}}
}

func heartbeat() *v1.ConnectRequest {
	return &v1.ConnectRequest{Message: &v1.ConnectRequest_Heartbeat{Heartbeat: &v1.Heartbeat{}}}
}

func encode(kind v1.SectionKind, stable *v1.SectionStable) *v1.SectionReport {
	encoded, _, err := facts.Encode(stable)
	if err != nil {
		panic(err)
	}
	return &v1.SectionReport{Kind: kind, Stable: encoded}
}

func setsSection(count uint64) *v1.SectionReport {
	return encode(sets, &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipsets{Ipsets: &v1.IpsetsFacts{Sets: count}}})
}

func kernelSection(release string) *v1.SectionReport {
	return encode(kernel, &v1.SectionStable{State: present, Content: &v1.SectionStable_Kernel{Kernel: &v1.KernelFacts{Release: release}}})
}

func ipvsSection(items []string) *v1.SectionReport {
	list := facts.ListDigest(v1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, items)
	return encode(ipvs, &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipvs{
		Ipvs: &v1.IpvsFacts{VirtualServers: uint64(len(items)), List: list}}})
}

func nodeNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("node-%04d", i))
	}
	return names
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
