package stream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const never = time.Hour

func digestOf(t *testing.T, kind v1.SectionKind, stable *v1.SectionStable) *v1.SectionDigest {
	t.Helper()
	_, digest, err := facts.Encode(stable)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.SectionDigest{Kind: kind, Digest: digest[:]}
}

func TestOnlyChangedSectionsTravel(t *testing.T) {
	f, dial := serveFake(t)
	source := &node{sets: 1}
	start(t, testConfig(source, dial))
	c := f.next(t)
	hello := c.welcome(never)
	if hello.GetNode() != "node-1" || hello.GetAgentVersion() != "v0.1.0" || hello.GetInstance() == "" || hello.GetNow() == nil {
		t.Errorf("hello %v", hello)
	}
	if got := kindsOf(c.recvReport()); got != "1 5 " {
		t.Errorf("first report has kinds %q", got)
	}
	source.set(func(n *node) { n.sets = 2 })
	report := c.recvReport()
	if kindsOf(report) != "5 " {
		t.Errorf("second report has kinds %q", kindsOf(report))
	}
	got, err := facts.Decode(sets, report.GetSections()[0].GetStable())
	if err != nil || got.GetIpsets().GetSets() != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestReconnectResendsWhatIsNotKnown(t *testing.T) {
	f, dial := serveFake(t)
	start(t, testConfig(&node{sets: 1}, dial))
	c := f.next(t)
	first := c.welcome(never)
	report := c.recvReport()
	c.end <- status.Error(codes.Unavailable, "draining")

	// Everything is known: an empty report, no section.
	var known []*v1.SectionDigest
	for _, section := range report.GetSections() {
		digest := facts.Sum(section.GetStable())
		known = append(known, &v1.SectionDigest{Kind: section.GetKind(), Digest: digest[:]})
	}
	c = f.next(t)
	if again := c.welcome(never, known...); again.GetInstance() != first.GetInstance() {
		t.Error("another instance without a restart")
	}
	if got := kindsOf(c.recvReport()); got != "" {
		t.Errorf("resent %q", got)
	}
	c.end <- status.Error(codes.Unavailable, "killed")

	// One of two is known, with an odd digest for the other.
	c = f.next(t)
	c.welcome(never, known[0], &v1.SectionDigest{Kind: sets, Digest: []byte("short")})
	if got := kindsOf(c.recvReport()); got != "5 " {
		t.Errorf("resent %q", got)
	}
	c.end <- nil

	// A fresh aggregator knows nothing.
	c = f.next(t)
	c.welcome(never)
	if got := kindsOf(c.recvReport()); got != "1 5 " {
		t.Errorf("resent %q", got)
	}
}

// An aggregator may know sections that an older agent does not read.
func TestSectionsThatAreNotReadAreTakenBack(t *testing.T) {
	f, dial := serveFake(t)
	start(t, testConfig(&node{sets: 1}, dial))
	c := f.next(t)
	ipvs := v1.SectionKind_SECTION_KIND_IPVS
	c.welcome(never, digestOf(t, ipvs, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_ABSENT}))
	report := c.recvReport()
	if kindsOf(report) != "1 5 3 " {
		t.Fatalf("kinds %q", kindsOf(report))
	}
	got, err := facts.Decode(ipvs, report.GetSections()[2].GetStable())
	if err != nil || got.GetState() != v1.SectionState_SECTION_STATE_UNREADABLE {
		t.Errorf("got %v, %v", got, err)
	}
}

// The name of a process is kept for as long as it streams: nobody gets a megabyte of it there.
func TestAWelcomeWithAHugeReplica(t *testing.T) {
	f, dial := serveFake(t)
	start(t, testConfig(&node{sets: 1}, dial))
	f.next(t).welcomeTo(strings.Repeat("x", 65), minHeartbeat)
	c := f.next(t) // it went away, and comes again
	c.welcomeTo(strings.Repeat("x", 64), minHeartbeat)
	c.recvReport()
}

func TestHeartbeats(t *testing.T) {
	f, dial := serveFake(t)
	start(t, testConfig(&node{sets: 1}, dial))
	c := f.next(t)
	c.welcome(minHeartbeat)
	c.recvReport()
	var last int64
	for range 3 {
		beat := c.recvHeartbeat()
		read := beat.GetSections()[0].GetVolatile().GetReadAt().GetSeconds()
		if len(beat.GetSections()) != 2 || beat.GetNow() == nil || read <= last {
			t.Errorf("heartbeat %v after one of scan %d", beat, last)
		}
		last = read
	}
}

func TestScanThatHangs(t *testing.T) {
	t.Run("does not block heartbeats", func(t *testing.T) {
		f, dial := serveFake(t)
		source := &node{}
		start(t, testConfig(source, dial))
		c := f.next(t)
		c.welcome(minHeartbeat)
		c.recvReport()
		source.set(func(n *node) { n.hang = true })
		for range 5 {
			c.recvHeartbeat()
		}
	})
	t.Run("is not vouched for forever", func(t *testing.T) {
		f, dial := serveFake(t)
		source := &node{}
		config := testConfig(source, dial)
		config.limits.stale = 300 * time.Millisecond
		stop := start(t, config)
		c := f.next(t)
		c.welcome(minHeartbeat)
		c.recvReport()
		source.set(func(n *node) { n.hang = true })
		time.Sleep(500 * time.Millisecond)
		beats := make(chan int, 1)
		go func() {
			n := 0
			for {
				if _, err := c.stream.Recv(); err != nil {
					beats <- n
					return
				}
				n++
			}
		}()
		time.Sleep(500 * time.Millisecond)
		stop()
		// At most four were under way before the scan was too old; afterwards none comes.
		if got := <-beats; got > 5 {
			t.Errorf("%d heartbeats", got)
		}
	})
}

// What is announced is reported at once, whatever the pause between two scans.
func TestAChangeEndsThePause(t *testing.T) {
	f, dial := serveFake(t)
	source := &node{sets: 1}
	changes := make(chan struct{})
	config := testConfig(source, dial)
	config.ScanInterval, config.Changes = never, changes
	start(t, config)
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	source.set(func(n *node) { n.sets = 2 })
	changes <- struct{}{}
	if got := kindsOf(c.recvReport()); got != "5 " {
		t.Errorf("report has kinds %q", got)
	}
}

func TestScansGoOnWhileDisconnected(t *testing.T) {
	f, dial := serveFake(t)
	source := &node{sets: 1}
	start(t, testConfig(source, dial))
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	c.end <- status.Error(codes.Unavailable, "away")
	source.set(func(n *node) { n.sets, n.scans = 7, 0 })
	waitFor(t, func() bool { source.mu.Lock(); defer source.mu.Unlock(); return source.scans > 3 })
	c = f.next(t)
	c.welcome(never)
	got, err := facts.Decode(sets, c.recvReport().GetSections()[1].GetStable())
	if err != nil || got.GetIpsets().GetSets() != 7 {
		t.Errorf("got %v, %v", got, err)
	}
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

func TestOrdersAreRefused(t *testing.T) {
	f, dial := serveFake(t)
	start(t, testConfig(&node{}, dial))
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	order := func(id string) *v1.ConnectResponse {
		return &v1.ConnectResponse{Message: &v1.ConnectResponse_Order{Order: &v1.Order{
			Id: id, Kind: v1.OrderKind_ORDER_KIND_PLAN, Target: v1.Target_TARGET_NFTABLES,
			SentAt: timestamppb.New(time.Unix(0, 0)), Deadline: timestamppb.New(time.Unix(60, 0)),
		}}}
	}
	for _, id := range []string{"order-0123456789-a", "order-0123456789-b"} {
		c.send(order(id))
		got := orderResult(t, c.recv())
		if got.GetId() != id || got.GetOutcome() != v1.OrderOutcome_ORDER_OUTCOME_REFUSED || !strings.Contains(got.GetMessage(), "--cleanup=never") {
			t.Errorf("got %v, want %s refused", got, id)
		}
	}
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_OrderAcknowledgement{
		OrderAcknowledgement: &v1.OrderAcknowledgement{Id: "order-0123456789-a"}}})
	// A question that is answered later says that the acknowledgement was heard.
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_DetailRequest{DetailRequest: &v1.DetailRequest{Id: 1}}})
	c.recv()
	c.end <- nil
	// On the next stream comes what nobody has acknowledged.
	c = f.next(t)
	c.welcome(never)
	c.recvReport()
	if got := orderResult(t, c.recv()).GetId(); got != "order-0123456789-b" {
		t.Errorf("answered %q", got)
	}
}

// orderResult decodes an answer to an order that came in one part.
func orderResult(t *testing.T, message *v1.ConnectRequest) *v1.OrderResult {
	t.Helper()
	result := &v1.OrderResult{}
	part := message.GetOrderUpdate().GetResult()
	if err := proto.Unmarshal(part.GetData(), result); err != nil || !part.GetLast() {
		t.Fatalf("%v is no whole result: %v", message, err)
	}
	return result
}

func TestListsAreSentInParts(t *testing.T) {
	f, dial := serveFake(t)
	long := strings.Repeat("x", 200<<10)
	source := &node{list: func(_ context.Context, wanted *v1.ListDigest) ([]string, error) {
		switch wanted.GetCount() {
		case 5:
			return []string{long, long, long, long, long}, nil
		case 0:
			return nil, nil
		}
		return nil, errors.New("the list has changed")
	}}
	start(t, testConfig(source, dial))
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	ask := func(id, count uint64) {
		c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_DetailRequest{DetailRequest: &v1.DetailRequest{
			Id: id, Detail: &v1.DetailRequest_List{List: &v1.ListDigest{Count: count}}}}})
	}
	expect := func(id uint64, items int, last bool, failed string) {
		t.Helper()
		got := c.recv().GetDetailPart()
		if got.GetId() != id || len(got.GetItems()) != items || got.GetLast() != last || got.GetError() != failed {
			t.Errorf("got part of %d with %d items, last %v, error %q", got.GetId(), len(got.GetItems()), got.GetLast(), got.GetError())
		}
	}
	ask(1, 5)
	expect(1, 2, false, "")
	expect(1, 2, false, "")
	expect(1, 1, true, "")
	ask(2, 0)
	expect(2, 0, true, "")
	ask(3, 1)
	expect(3, 0, true, "the list has changed")
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_DetailRequest{DetailRequest: &v1.DetailRequest{Id: 4}}})
	expect(4, 0, true, "this agent does not know what is asked for")
}

func TestTooManyQuestions(t *testing.T) {
	f, dial := serveFake(t)
	release := make(chan struct{})
	source := &node{list: func(ctx context.Context, _ *v1.ListDigest) ([]string, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, nil
	}}
	start(t, testConfig(source, dial))
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	// One is being answered, 16 wait, at least one is one too many.
	for id := uint64(1); id <= maxQuestions+2; id++ {
		c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_DetailRequest{DetailRequest: &v1.DetailRequest{
			Id: id, Detail: &v1.DetailRequest_List{List: &v1.ListDigest{}}}}})
	}
	if got := c.recv().GetDetailPart(); got.GetError() != "too many questions at once" {
		t.Errorf("got %v", got)
	}
	close(release)
}

func TestUnknownMessageIsPassedOver(t *testing.T) {
	f, dial := serveFake(t)
	source := &node{}
	start(t, testConfig(source, dial))
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	c.send(&v1.ConnectResponse{})
	source.set(func(n *node) { n.sets = 3 })
	c.recvReport()
}

func TestEachAggregatorHasItsOwnStream(t *testing.T) {
	f, dial := serveFake(t)
	source := &node{}
	config := testConfig(source, dial)
	config.Addresses = []string{"192.0.2.1:8443", "192.0.2.2:8443"}
	start(t, config)
	one, two := f.next(t), f.next(t)
	for _, c := range []*call{one, two} {
		c.welcome(never)
		c.recvReport()
	}
	one.end <- status.Error(codes.Unavailable, "away")
	source.set(func(n *node) { n.sets = 9 })
	if got := kindsOf(two.recvReport()); got != "5 " {
		t.Errorf("the other stream got %q", got)
	}
	f.next(t).welcome(never)
}

func TestNoWelcome(t *testing.T) {
	f, dial := serveFake(t)
	config := testConfig(&node{}, dial)
	config.limits.welcome = 50 * time.Millisecond
	start(t, config)
	f.next(t)
	// It gives up and comes again.
	f.next(t).welcome(never)
}

func TestWelcomeMustComeFirst(t *testing.T) {
	f, dial := serveFake(t)
	start(t, testConfig(&node{}, dial))
	c := f.next(t)
	c.recv()
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_Order{Order: &v1.Order{Id: "x"}}})
	c = f.next(t)
	c.welcome(never)
	c.recvReport()
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_Welcome{Welcome: &v1.Welcome{}}})
	f.next(t).welcome(never)
}

func TestRunRefusesUselessConfig(t *testing.T) {
	good := testConfig(&node{}, nil)
	for name, spoil := range map[string]func(*Config){
		"no address":     func(c *Config) { c.Addresses = nil },
		"no credentials": func(c *Config) { c.Credentials = nil },
		"no source":      func(c *Config) { c.Source = nil },
		"no node name":   func(c *Config) { c.Node = "Not_A_Node" },
		"no port":        func(c *Config) { c.Addresses = []string{"a"} },
		"named twice":    func(c *Config) { c.Addresses = []string{"a:1", "b:1", "a:1"} },
	} {
		config := good
		spoil(&config)
		if err := Run(t.Context(), config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
