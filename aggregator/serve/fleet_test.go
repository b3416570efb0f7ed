package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/fleet"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func codeOf(err error) codes.Code { return status.Code(err) }

// countGoroutines opens streams on conn until there are total of them, and counts when all is quiet.
func countGoroutines(t *testing.T, l *lab, conn *grpc.ClientConn, total int) int {
	t.Helper()
	for i := range total {
		name := fmt.Sprint("counted-", i)
		if l.store.Summary(1, name) != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		stream, err := v1.NewAgentServiceClient(conn).Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c := &caller{t: t, stream: stream}
		c.send(hello(name))
		c.recv()
		c.send(report(kernelSection("6.1.0")))
		l.waitFor(name, func() bool { return l.store.Summary(1, name).GetLastSeen() != nil })
	}
	time.Sleep(50 * time.Millisecond)
	return runtime.NumGoroutine()
}

func TestQuestions(t *testing.T) {
	l := startLab(t, short(), nil)
	l.report("a", kernelSection("6.1.0"))
	l.report("b", kernelSection("5.10.0"), setsSection(4))
	ctx := t.Context()
	readiness, err := l.client.GetReadiness(ctx, &v1.GetReadinessRequest{})
	if err != nil || readiness.GetNodes() != 2 || readiness.GetReady() != 1 || readiness.GetTarget() != v1.Target_TARGET_NFTABLES {
		t.Errorf("readiness %v, %v", readiness, err)
	}
	node, err := l.client.GetNode(ctx, &v1.GetNodeRequest{Node: "b"})
	if err != nil || node.GetFacts().GetSections()[0].GetStable().GetKernel().GetRelease() != "5.10.0" || !node.GetSummary().GetConnected() {
		t.Errorf("node %v, %v", node, err)
	}
}

func TestRefusedQuestions(t *testing.T) {
	l := startLab(t, short(), nil)
	l.report("a", kernelSection("6.1.0"))
	ctx := t.Context()
	getNode := func(request *v1.GetNodeRequest) error { _, err := l.client.GetNode(ctx, request); return err }
	listNodes := func(request *v1.ListNodesRequest) error { _, err := l.client.ListNodes(ctx, request); return err }
	_, badTarget := l.client.GetReadiness(ctx, &v1.GetReadinessRequest{Target: 99})
	name := v1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS
	tests := map[string]struct {
		err  error
		want codes.Code
	}{
		"target of the future": {badTarget, codes.InvalidArgument},
		"unknown node":         {getNode(&v1.GetNodeRequest{Node: "nobody"}), codes.NotFound},
		"no node name":         {getNode(&v1.GetNodeRequest{Node: "No Node"}), codes.InvalidArgument},
		"no such list":         {getNode(&v1.GetNodeRequest{Node: "a", Lists: []v1.ListName{9}}), codes.InvalidArgument},
		"a list twice":         {getNode(&v1.GetNodeRequest{Node: "a", Lists: []v1.ListName{name, name}}), codes.InvalidArgument},
		"page of 1,001":        {listNodes(&v1.ListNodesRequest{PageSize: 1001}), codes.InvalidArgument},
		"token of noise":       {listNodes(&v1.ListNodesRequest{PageToken: "!!!"}), codes.InvalidArgument},
		"token of another":     {listNodes(&v1.ListNodesRequest{PageToken: "bm9kZQ"}), codes.InvalidArgument},
		"token of no name":     {listNodes(&v1.ListNodesRequest{PageToken: makeToken("A B")}), codes.InvalidArgument},
	}
	for name, tt := range tests {
		if codeOf(tt.err) != tt.want {
			t.Errorf("%s: %v, want %v", name, tt.err, tt.want)
		}
	}
}

func TestListNodesPageByPage(t *testing.T) {
	l := startLab(t, short(), nil)
	for _, name := range nodeNames(7) {
		session, _ := l.store.Join(hello(name).GetHello(), nil)
		if err := session.Report(&v1.Report{}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	request := &v1.ListNodesRequest{PageSize: 3}
	for {
		page, err := l.client.ListNodes(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range page.GetNodes() {
			names = append(names, node.GetNode())
		}
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			break
		}
	}
	if !slices.Equal(names, nodeNames(7)) {
		t.Errorf("names %v", names)
	}
}

// answerLists plays an agent that answers every question with the same parts.
func answerLists(c *caller, parts ...*v1.DetailPart) (asked *counter) {
	asked = &counter{}
	go func() {
		for {
			message, err := c.stream.Recv()
			if err != nil {
				return
			}
			if message.GetDetailRequest() == nil {
				continue
			}
			asked.add()
			for _, part := range parts {
				answer := &v1.DetailPart{Id: message.GetDetailRequest().GetId(), Items: part.GetItems(), Last: part.GetLast(), Error: part.GetError()}
				_ = c.stream.Send(&v1.ConnectRequest{Message: &v1.ConnectRequest_DetailPart{DetailPart: answer}})
			}
		}
	}()
	return asked
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() { c.mu.Lock(); defer c.mu.Unlock(); c.n++ }
func (c *counter) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (l *lab) list(node string) *v1.NamedList {
	l.t.Helper()
	answer, err := l.client.GetNode(l.t.Context(), &v1.GetNodeRequest{Node: node, Lists: []v1.ListName{v1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS}})
	if err != nil {
		l.t.Fatal(err)
	}
	return answer.GetLists()[0]
}

// A list that is the same on many nodes is fetched once, however many ask.
func TestListsAreFetchedOnce(t *testing.T) {
	l := startLab(t, short(), nil)
	items := []string{"TCP 10.96.0.1:443", "UDP 10.96.0.10:53"}
	asked := answerLists(l.report("a", ipvsSection(items)), &v1.DetailPart{Items: items[:1]}, &v1.DetailPart{Items: items[1:], Last: true})
	same := l.report("same", ipvsSection(items))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if got := l.list("a"); !slices.Equal(got.GetItems(), items) || got.GetError() != "" {
				t.Errorf("got %v", got)
			}
		})
	}
	group.Wait()
	same.send(heartbeat())
	if got := l.list("same"); !slices.Equal(got.GetItems(), items) {
		t.Errorf("got %v", got)
	}
	if asked.get() != 1 {
		t.Errorf("the agent was asked %d times", asked.get())
	}
}

func TestListsThatCannotBeHad(t *testing.T) {
	items := []string{"TCP 10.96.0.1:443"}
	lastly := func(items ...string) *v1.DetailPart { return &v1.DetailPart{Items: items, Last: true} }
	for name, tt := range map[string]struct {
		part *v1.DetailPart
		want string
	}{
		"the node says no":   {&v1.DetailPart{Last: true, Error: "the list has changed"}, "the list has changed"},
		"another list":       {lastly("TCP 10.96.0.2:443"), "not the list"},
		"more than promised": {lastly("TCP 10.96.0.1:443", "x"), "more than the list"},
		"lines within lines": {lastly("TCP\n10"), "more than one line"},
		"no answer":          {&v1.DetailPart{}, "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := short()
			limits.list = 300 * time.Millisecond
			l := startLab(t, limits, nil)
			answerLists(l.report("a", ipvsSection(items)), tt.part)
			if got := l.list("a"); !strings.Contains(got.GetError(), tt.want) || len(got.GetItems()) != 0 {
				t.Errorf("got %v", got)
			}
		})
	}
	t.Run("not connected", func(t *testing.T) {
		l := startLab(t, short(), nil)
		c := l.report("a", ipvsSection(items))
		_ = c.stream.CloseSend()
		c.ends(codes.Unknown)
		l.waitFor("the end", func() bool { return !l.store.Summary(1, "a").GetConnected() })
		if got := l.list("a"); !strings.Contains(got.GetError(), "not connected") {
			t.Errorf("got %v", got)
		}
	})
	t.Run("none reported", func(t *testing.T) {
		l := startLab(t, short(), nil)
		l.report("a", kernelSection("6.1.0"))
		if got := l.list("a"); !strings.Contains(got.GetError(), "no such list") {
			t.Errorf("got %v", got)
		}
	})
}

func TestListCacheIsBounded(t *testing.T) {
	cache := newLists(time.Second, 100)
	for i := range 10 {
		cache.keep(fmt.Sprint(i), []string{strings.Repeat("x", 20)})
	}
	cache.keep("huge", []string{strings.Repeat("x", 200)})
	if cache.bytes > 100 || len(cache.byKey) != 2 || cache.recent.Len() != 2 {
		t.Errorf("%d bytes, %d lists", cache.bytes, len(cache.byKey))
	}
	if _, kept := cache.lookup("9"); !kept {
		t.Error("the newest is not kept")
	}
	if _, kept := cache.lookup("0"); kept {
		t.Error("the oldest is kept")
	}
}

func TestWatch(t *testing.T) {
	l := startLab(t, short(), nil)
	a := l.report("a", kernelSection("6.1.0"))
	l.report("b", kernelSection("6.1.0"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := l.client.Watch(ctx, &v1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for {
		event, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if synced := event.GetSynced(); synced != nil {
			if synced.GetNodes() != 2 || !strings.HasPrefix(synced.GetIncomplete(), "nobody tells this aggregator") {
				t.Errorf("synced %v", synced)
			}
			break
		}
		names = append(names, event.GetNode().GetNode())
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names %v", names)
	}
	a.send(report(setsSection(8)))
	event, err := watch.Recv()
	if err != nil || event.GetNode().GetInventory().GetIpsets() != 8 {
		t.Errorf("event %v, %v", event, err)
	}
	l.stop()
	for err == nil {
		_, err = watch.Recv()
	}
	if codeOf(err) != codes.Unavailable {
		t.Errorf("at the stop: %v", err)
	}
}

// A watcher that does not read keeps neither reports nor others waiting, however much there is for it.
func TestWatcherThatDoesNotRead(t *testing.T) {
	l := startLab(t, short(), nil)
	c := l.report("a", kernelSection("6.1.0"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := l.client.Watch(ctx, &v1.WatchRequest{}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3000) {
		c.send(report(setsSection(i + 1)))
	}
	l.waitFor("the last report", func() bool { return l.store.Summary(1, "a").GetInventory().GetIpsets() == 3000 })
}

func TestDrain(t *testing.T) {
	l := startLab(t, short(), nil)
	agents := []*caller{l.report("a", kernelSection("6.1.0")), l.join("b"), l.connect()}
	agents[2].send(hello("c"))
	agents[2].recv()
	began := time.Now()
	l.stop()
	for _, agent := range agents {
		agent.ends(codes.Unavailable)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestHealthAndReflection(t *testing.T) {
	l := startLab(t, short(), nil)
	answer, err := healthv1.NewHealthClient(l.conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v", answer, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionv1.NewServerReflectionClient(l.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		t.Fatal(err)
	}
	services, err := stream.Recv()
	if err != nil || !strings.Contains(services.String(), "offramp.v1.FleetService") {
		t.Errorf("services %v, %v", services, err)
	}
}

func TestPanicsAreContained(t *testing.T) {
	l := startLab(t, short(), func(c *Config) { c.Log = quiet() })
	var err error
	func() {
		defer contain(quiet(), "/x/Y", &err)
		panic(errors.New("a fault"))
	}()
	if codeOf(err) != codes.Internal || strings.Contains(err.Error(), "a fault") {
		t.Errorf("got %v", err)
	}
	_, err = containUnary(quiet())(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("x") })
	if codeOf(err) != codes.Internal {
		t.Errorf("unary: %v", err)
	}
	err = containStream(quiet())(nil, nil, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { panic("x") })
	if codeOf(err) != codes.Internal {
		t.Errorf("stream: %v", err)
	}
	if _, err := l.client.GetReadiness(t.Context(), &v1.GetReadinessRequest{}); err != nil {
		t.Error(err)
	}
}

func TestEndingGivesReasonsTheirStatus(t *testing.T) {
	for err, want := range map[error]codes.Code{
		nil: codes.OK, fleet.ErrReplaced: codes.Aborted, outOfOrder("x"): codes.FailedPrecondition,
		errDraining: codes.Unavailable, errNotTaken: codes.DeadlineExceeded, errors.New("bad"): codes.InvalidArgument,
		status.Error(codes.ResourceExhausted, "x"): codes.ResourceExhausted,
	} {
		if got := codeOf(ending(err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	e := &ender{}
	e.end(fleet.ErrReplaced)
	e.end(errDraining)
	if got := codeOf(e.reason(errors.New("canceled"))); got != codes.Aborted {
		t.Errorf("ended by us: %v", got)
	}
}
