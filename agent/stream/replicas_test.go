package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"offramp.dev/offramp/agent/discover"
	"offramp.dev/offramp/internal/leaktest"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// quietFor is how long nothing must happen to be sure that nothing will. Attempts are at most 20 ms apart here.
const quietFor = 300 * time.Millisecond

// names is a resolver that the test changes.
type names struct {
	mu      sync.Mutex
	answers []netip.Addr
	err     error
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answers, n.err
}

func (n *names) set(err error, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers, n.err = nil, err
	for _, address := range addresses {
		n.answers = append(n.answers, netip.MustParseAddr(address))
	}
}

// place is several aggregators, each at an address of its own, and an agent that is told their name.
type place struct {
	t      *testing.T
	names  *names
	fakes  map[string]*fake
	config Config
}

// places serves at the addresses; the name has them all at first.
func places(t *testing.T, addresses ...string) *place {
	t.Helper()
	leaktest.Check(t)
	p := &place{t: t, names: &names{}, fakes: map[string]*fake{}}
	listeners := map[string]*bufconn.Listener{}
	for _, address := range addresses {
		p.fakes[address], listeners[net.JoinHostPort(address, "8443")] = p.serve()
	}
	p.names.set(nil, addresses...)
	p.config = testConfig(&node{}, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if listener := listeners[address]; listener != nil {
			return listener.DialContext(ctx)
		}
		return nil, fmt.Errorf("nobody is at %s", address)
	}))
	p.config.Addresses = []string{"replicas:8443"}
	p.config.Finder = discover.Finder{Resolver: p.names, Interval: 20 * time.Millisecond, FirstPause: 5 * time.Millisecond}
	p.config.limits.recheck = never
	return p
}

func (p *place) serve() (*fake, *bufconn.Listener) {
	f, listener := &fake{streams: make(chan *call)}, bufconn.Listen(64<<10)
	server := grpc.NewServer()
	v1.RegisterAgentServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	p.t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			p.t.Errorf("serve: %v", err)
		}
	})
	return f, listener
}

// nobodyComes holds that no stream is opened for a while.
func (p *place) nobodyComes(address string) {
	p.t.Helper()
	select {
	case <-p.fakes[address].streams:
		p.t.Fatalf("a stream is opened to %s", address)
	case <-time.After(quietFor):
	}
}

// lives holds that a stream still reports.
func (p *place) lives(c *call, sets uint64) {
	p.t.Helper()
	source, _ := p.config.Source.(*node)
	source.set(func(n *node) { n.sets = sets })
	if got := kindsOf(c.recvReport()); got != "5 " {
		p.t.Errorf("reported %q", got)
	}
}

func (p *place) welcomed(address, replica string) *call {
	p.t.Helper()
	c := p.fakes[address].next(p.t)
	c.welcomeTo(replica, never)
	c.recvReport()
	return c
}

func away() error { return status.Error(codes.Unavailable, "away") }

const (
	four  = "192.0.2.4"
	other = "192.0.2.5"
	six   = "2001:db8::4"
)

func TestEachAddressIsAReplica(t *testing.T) {
	p := places(t, four, other)
	p.names.set(nil, four)
	start(t, p.config)
	one := p.welcomed(four, "one")
	p.nobodyComes(other)
	p.names.set(nil, four, other)
	two := p.welcomed(other, "two")
	p.lives(one, 1)
	two.recvReport()
	// DNS fails: streams live on, and one that ends is opened again.
	p.names.set(errors.New("refused"))
	one.end <- away()
	p.welcomed(four, "one")
	p.lives(two, 2)
}

// What goes from the name keeps its stream while that lives, and is not called again afterwards, until it is back in the name.
func TestAddressThatGoes(t *testing.T) {
	p := places(t, four, other)
	start(t, p.config)
	one, two := p.welcomed(four, "one"), p.welcomed(other, "two")
	p.names.set(nil, four)
	time.Sleep(quietFor)
	p.lives(two, 1)
	one.recvReport()
	two.end <- away()
	p.nobodyComes(other)
	p.lives(one, 2)
	p.names.set(nil, four, other)
	p.welcomed(other, "two")
	p.lives(one, 3)
}

// A peer without a stream ends at once when its address goes.
func TestAddressThatGoesWhileNobodyIsThere(t *testing.T) {
	p := places(t, four, other)
	start(t, p.config)
	one := p.welcomed(four, "one")
	p.fakes[other].next(t).end <- away()
	p.names.set(nil, four)
	time.Sleep(quietFor)
	p.nobodyComes(other)
	p.lives(one, 1)
}

// Two addresses of one process get one stream. The second peer does not report there, which would end the first one's stream, and
// does not call again and again; when the first one's stream ends, either takes it up.
func TestTwoAddressesOfOneProcess(t *testing.T) {
	p := places(t, four, six)
	start(t, p.config)
	first := p.welcomed(four, "one")
	second := p.fakes[six].next(t)
	second.welcomeTo("one", never)
	if message, err := second.stream.Recv(); err == nil {
		t.Errorf("the second stream says %v", message)
	}
	p.nobodyComes(six)
	p.lives(first, 1)
	// The process is gone from the first address and there at the second.
	p.names.set(nil, six)
	time.Sleep(quietFor)
	first.end <- away()
	again := p.welcomed(six, "one")
	p.nobodyComes(four)
	p.lives(again, 2)
}

// However the two take turns when the process ends, one stream comes of it.
func TestTwoAddressesOfAProcessThatRestarts(t *testing.T) {
	p := places(t, four, six)
	start(t, p.config)
	stays := func(replica string) (*call, string) {
		t.Helper()
		reported := make(chan *call)
		at := map[*call]string{}
		for range 2 {
			var c *call
			select {
			case c = <-p.fakes[four].streams:
				at[c] = four
			case c = <-p.fakes[six].streams:
				at[c] = six
			case <-time.After(patient):
				t.Fatal("no two streams are opened")
			}
			c.t = t
			c.welcomeTo(replica, never)
			go func() {
				if message, err := c.stream.Recv(); err == nil && message.GetReport() != nil {
					reported <- c
				}
			}()
		}
		c := <-reported
		select {
		case <-reported:
			t.Fatal("both report")
		case <-time.After(quietFor):
		}
		return c, at[c]
	}
	for i := range 5 {
		c, at := stays(fmt.Sprint("process ", i))
		t.Logf("process %d is heard at %s", i, at)
		c.end <- away()
	}
}

// A peer that stays back looks now and then whether its address leads to another process.
func TestPeerThatStaysBackLooksAgain(t *testing.T) {
	p := places(t, four, six)
	p.config.limits.recheck = 50 * time.Millisecond
	start(t, p.config)
	first := p.welcomed(four, "one")
	for range 3 {
		c := p.fakes[six].next(t)
		c.welcomeTo("one", never)
		c.end <- away()
	}
	p.welcomed(six, "two")
	p.lives(first, 1)
}

// An aggregator that does not say who it is gets a stream for each address, as it always did.
func TestProcessesWithoutAName(t *testing.T) {
	p := places(t, four, six)
	start(t, p.config)
	first, second := p.welcomed(four, ""), p.welcomed(six, "")
	p.lives(first, 1)
	second.recvReport()
}

// The certificate has to be for the host that was named, not for an address that DNS gave.
func TestAuthorityIsTheName(t *testing.T) {
	p := places(t, four)
	start(t, p.config)
	headers, _ := metadata.FromIncomingContext(p.fakes[four].next(t).stream.Context())
	if got := strings.Join(headers.Get(":authority"), " "); got != "replicas:8443" {
		t.Errorf("authority %q", got)
	}
}
