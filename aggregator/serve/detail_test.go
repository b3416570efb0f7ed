package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func askSet(node, set string) *v1.GetDetailRequest {
	return &v1.GetDetailRequest{Node: node, Detail: &v1.GetDetailRequest_Ipset{Ipset: set}}
}

func askChain(section v1.SectionKind, family, table, chain string) *v1.GetDetailRequest {
	return &v1.GetDetailRequest{Node: "a", Detail: &v1.GetDetailRequest_Chain{
		Chain: &v1.ChainQuery{Section: section, Family: family, Table: table, Chain: chain},
	}}
}

func askService(protocol string, port, nodePort uint32, addresses ...string) *v1.GetDetailRequest {
	return &v1.GetDetailRequest{Node: "a", Detail: &v1.GetDetailRequest_Service{
		Service: &v1.ServiceQuery{Protocol: protocol, Addresses: addresses, Port: port, NodePort: nodePort},
	}}
}

// detail asks and takes the whole answer: its items, and why it is not complete.
func (l *lab) detail(request *v1.GetDetailRequest) (items []string, failed string, err error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patient)
	defer cancel()
	stream, err := l.client.GetDetail(ctx, request)
	if err != nil {
		return nil, "", err
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return items, failed, nil
		}
		if err != nil {
			return items, failed, err
		}
		if failed != "" {
			l.t.Errorf("more comes after %q", failed)
		}
		items, failed = append(items, part.GetItems()...), part.GetError()
	}
}

func (c *caller) answer(id uint64, last bool, items ...string) {
	c.send(&v1.ConnectRequest{Message: &v1.ConnectRequest_DetailPart{
		DetailPart: &v1.DetailPart{Id: id, Items: items, Last: last},
	}})
}

// What is asked reaches the node as it is, names to the byte; what the node says comes back part by part.
func TestDetailsArePassedOn(t *testing.T) {
	l := startLab(t, short(), nil)
	c := l.report("a", setsSection(1))
	for name, request := range map[string]*v1.GetDetailRequest{
		"set":                askSet("a", "$(reboot)\n\x1b[2J"),
		"chain":              askChain(v1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, "", "nat", "KUBE-SERVICES"),
		"chain of nftables":  askChain(v1.SectionKind_SECTION_KIND_NFTABLES, "ip", "kube-proxy", "services"),
		"service":            askService("TCP", 443, 30443, "10.96.0.1", "fd00::1"),
		"node port of a UDP": askService("UDP", 0, 30053),
	} {
		asked := make(chan *v1.DetailRequest, 1)
		go func() {
			message, err := c.stream.Recv()
			if err != nil {
				t.Errorf("the node: %v", err)
			}
			id := message.GetDetailRequest().GetId()
			asked <- message.GetDetailRequest()
			c.answer(id, false, "one", "two")
			c.answer(id, true, "three")
		}()
		items, failed, err := l.detail(request)
		if fmt.Sprint(items) != "[one two three]" || failed != "" || err != nil {
			t.Errorf("%s: %v, %q, %v", name, items, failed, err)
		}
		got := <-asked
		want := detailRequest(request)
		want.Id = got.GetId()
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s, as asked (-) and as it came (+):\n%s", name, diff)
		}
	}
}

func TestDetailsThatAreRefused(t *testing.T) {
	l := startLab(t, short(), nil)
	c := l.report("a", setsSection(1))
	gone := l.report("gone", setsSection(1))
	_ = gone.stream.CloseSend()
	l.waitFor("the end of gone", func() bool { return !l.store.Summary(1, "gone").GetConnected() })
	nft, legacy := v1.SectionKind_SECTION_KIND_NFTABLES, v1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
	list := func(node string, name v1.ListName) *v1.GetDetailRequest {
		return &v1.GetDetailRequest{Node: node, Detail: &v1.GetDetailRequest_List{List: name}}
	}
	for name, tt := range map[string]struct {
		request *v1.GetDetailRequest
		want    codes.Code
	}{
		"never reported":        {askSet("b", "S"), codes.NotFound},
		"no such list there":    {list("a", v1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS), codes.NotFound},
		"not connected":         {askSet("gone", "S"), codes.Unavailable},
		"no node name":          {askSet("A B", "S"), codes.InvalidArgument},
		"nothing":               {&v1.GetDetailRequest{Node: "a"}, codes.InvalidArgument},
		"no list":               {list("a", 77), codes.InvalidArgument},
		"set without a name":    {askSet("a", ""), codes.InvalidArgument},
		"set of 1,025 bytes":    {askSet("a", strings.Repeat("x", 1025)), codes.InvalidArgument},
		"chain of IPVS":         {askChain(ipvs, "", "nat", "X"), codes.InvalidArgument},
		"chain without a name":  {askChain(legacy, "", "nat", ""), codes.InvalidArgument},
		"nft without a family":  {askChain(nft, "", "t", "c"), codes.InvalidArgument},
		"service of ICMP":       {askService("ICMP", 1, 0, "10.0.0.1"), codes.InvalidArgument},
		"service of nothing":    {askService("TCP", 80, 0), codes.InvalidArgument},
		"service without port":  {askService("TCP", 0, 0, "10.0.0.1"), codes.InvalidArgument},
		"service with a name":   {askService("TCP", 80, 0, "example"), codes.InvalidArgument},
		"service of port 65536": {askService("TCP", 65536, 0, "10.0.0.1"), codes.InvalidArgument},
		"service of 33":         {askService("TCP", 80, 0, strings.Split(strings.Repeat("10.0.0.1,", 32)+"10.0.0.1", ",")...), codes.InvalidArgument},
	} {
		if _, _, err := l.detail(tt.request); status.Code(err) != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	// No node was bothered with any of it.
	asked := answerLists(c, &v1.DetailPart{Items: []string{"x"}, Last: true, Error: "there is no such thing"})
	items, failed, err := l.detail(askSet("a", "S"))
	if err != nil || len(items) != 1 || failed != "the node says: there is no such thing" {
		t.Errorf("%v, %q, %v", items, failed, err)
	}
	if asked.get() != 1 {
		t.Errorf("the node was asked %d times", asked.get())
	}
}

func TestDetailOfAList(t *testing.T) {
	l := startLab(t, short(), nil)
	items := make([]string, 2*listPiece+1)
	for i := range items {
		items[i] = fmt.Sprintf("TCP 10.%d.%d.%d:80", i>>16, i>>8&255, i&255)
	}
	answerLists(l.report("a", ipvsSection(items)), &v1.DetailPart{Items: items, Last: true})
	got, failed, err := l.detail(&v1.GetDetailRequest{Node: "a", Detail: &v1.GetDetailRequest_List{
		List: v1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS,
	}})
	if err != nil || failed != "" || fmt.Sprint(got) != fmt.Sprint(items) {
		t.Errorf("%d items, %q, %v", len(got), failed, err)
	}
}

// A node that goes away, answers never, or without end costs its reader the answer and nothing else.
func TestDetailsThatBreakOff(t *testing.T) {
	big := strings.Repeat("x", 400<<10)
	for name, tt := range map[string]struct {
		node func(*caller, uint64)
		want codes.Code
	}{
		"goes away": {func(c *caller, id uint64) {
			c.answer(id, false, "one")
			_ = c.stream.CloseSend()
		}, codes.Unavailable},
		"never answers": {func(*caller, uint64) {}, codes.DeadlineExceeded},
		"without end": {func(c *caller, id uint64) {
			for range 2 * maxAnswer / len(big) {
				c.answer(id, false, big)
			}
		}, codes.ResourceExhausted},
		"nothing, very often": {func(c *caller, id uint64) {
			c.answer(id, false, make([]string, maxPartItems+1)...)
		}, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			limits := short()
			if tt.want == codes.DeadlineExceeded {
				limits.detail = 200 * time.Millisecond
			}
			l := startLab(t, limits, nil)
			c := l.report("a", setsSection(1))
			go func() {
				message, err := c.stream.Recv()
				if err == nil {
					tt.node(c, message.GetDetailRequest().GetId())
				}
			}()
			if _, _, err := l.detail(askSet("a", "S")); status.Code(err) != tt.want {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// The agent hears that nobody waits any more.
func TestDetailsAreCalledOff(t *testing.T) {
	l := startLab(t, short(), nil)
	c := l.report("a", setsSection(1))
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := l.client.GetDetail(ctx, askSet("a", "S")); err != nil {
		t.Fatal(err)
	}
	id := c.recv().GetDetailRequest().GetId()
	cancel()
	if got := c.recv().GetDetailCancel(); got.GetId() != id {
		t.Errorf("got %v, want question %d called off", got, id)
	}
	// What comes late is passed over.
	c.answer(id, true, "late")
	c.send(heartbeat())
	l.waitFor("an open stream after it", func() bool { return l.store.Summary(1, "a").GetConnected() })
}

// A reader that takes nothing costs a few parts of memory, and the node's heartbeats come again.
func TestSlowReaderIsGivenUp(t *testing.T) {
	limits := short()
	limits.slowReader = 300 * time.Millisecond
	l := startLab(t, limits, nil)
	c := l.report("a", setsSection(1))
	stream, err := l.client.GetDetail(t.Context(), askSet("a", "S"))
	if err != nil {
		t.Fatal(err)
	}
	id := c.recv().GetDetailRequest().GetId()
	big := strings.Repeat("x", 400<<10)
	before := heap()
	for range maxAnswer/len(big) - 1 {
		c.answer(id, false, big)
	}
	c.send(report(kernelSection("6.1.0")))
	l.waitFor("the report behind the answer", func() bool { return l.store.Summary(1, "a").GetKernelRelease() == "6.1.0" })
	if got := c.recv().GetDetailCancel(); got.GetId() != id {
		t.Errorf("got %v, want question %d called off", got, id)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d MiB more are held", grown>>20)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the answer ended with %v", err)
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestTooManyDetailsAtOnce(t *testing.T) {
	l := startLab(t, short(), nil)
	c := l.report("a", setsSection(1))
	for range maxPending {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := l.client.GetDetail(ctx, askSet("a", "S")); err != nil {
			t.Fatal(err)
		}
		c.recv()
	}
	if _, _, err := l.detail(askSet("a", "S")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}
