package serve

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"offramp.dev/offramp/agent/stream"
	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// These tests put the real agent's stream in front of the real aggregator.

// machine is what the agent reads.
type machine struct {
	mu    sync.Mutex
	sets  uint64
	lines []string
}

func (m *machine) set(sets uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets = sets
}

func (m *machine) Scan(context.Context) *v1.NodeFacts {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := facts.ListDigest(v1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, m.lines)
	return &v1.NodeFacts{Sections: []*v1.Section{
		{Kind: kernel, Stable: &v1.SectionStable{State: present, Content: &v1.SectionStable_Kernel{Kernel: &v1.KernelFacts{Release: "6.1.0"}}}},
		{Kind: ipvs, Stable: &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipvs{
			Ipvs: &v1.IpvsFacts{VirtualServers: uint64(len(m.lines)), List: list}}}},
		{Kind: sets, Stable: &v1.SectionStable{State: present, Content: &v1.SectionStable_Ipsets{Ipsets: &v1.IpsetsFacts{Sets: m.sets}}}},
	}}
}

func (m *machine) Detail(_ context.Context, wanted *v1.DetailRequest, emit func([]string) error) error {
	return emit([]string{wanted.String()})
}

func (m *machine) List(context.Context, *v1.ListDigest) ([]string, error) {
	return slices.Clone(m.lines), nil
}

// wire counts what the agent sends.
type wire struct {
	mu         sync.Mutex
	reports    [][]v1.SectionKind
	heartbeats int
	bytes      int
}

func (w *wire) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (w *wire) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (w *wire) HandleConn(context.Context, stats.ConnStats)                       {}

func (w *wire) HandleRPC(_ context.Context, event stats.RPCStats) {
	out, ok := event.(*stats.OutPayload)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += out.WireLength
	message, _ := out.Payload.(*v1.ConnectRequest)
	switch {
	case message.GetHeartbeat() != nil:
		w.heartbeats++
	case message.GetReport() != nil:
		kinds := []v1.SectionKind{}
		for _, section := range message.GetReport().GetSections() {
			kinds = append(kinds, section.GetKind())
		}
		w.reports = append(w.reports, kinds)
	}
}

func (w *wire) seen() (reports [][]v1.SectionKind, heartbeats, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reports), w.heartbeats, w.bytes
}

// startAgent runs the real client of node a until the test ends. Without randomness it beats at once and retries after 0.4 s.
func (l *lab) startAgent(source stream.Source, change func(*stream.Config)) *wire {
	l.t.Helper()
	counted := &wire{}
	config := stream.Config{
		Addresses: []string{l.address}, Credentials: insecure.NewCredentials(), Node: "a", AgentVersion: "v0.1.0", Source: source,
		ScanInterval: 10 * time.Millisecond, Log: quiet(), Rand: func() float64 { return 0 },
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(counted)},
	}
	if change != nil {
		change(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- stream.Run(ctx, config) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Errorf("agent: %v", err)
		}
	})
	return counted
}

// waitForSets waits until the agent's node shows so many sets.
func (l *lab) waitForSets(want uint64) {
	l.t.Helper()
	l.waitFor(fmt.Sprint(want, " sets"), func() bool {
		return l.store.Summary(1, "a").GetInventory().GetIpsets() == want
	})
}

func TestAgentSendsOnlyWhatChanged(t *testing.T) {
	l := startLab(t, short(), nil)
	node := &machine{sets: 1}
	counted := l.startAgent(node, nil)
	l.waitForSets(1)
	// Many scans and heartbeats without news.
	l.waitFor("five heartbeats", func() bool { _, beats, _ := counted.seen(); return beats >= 5 })
	node.set(2)
	l.waitForSets(2)
	reports, beats, bytes := counted.seen()
	if fmt.Sprint(reports) != fmt.Sprint([][]v1.SectionKind{{kernel, ipvs, sets}, {sets}}) {
		t.Errorf("reports %v", reports)
	}
	// Hello, the first report, one section, and heartbeats of a few bytes for three sections.
	if limit := 600 + 60*beats; bytes > limit {
		t.Errorf("%d bytes with %d heartbeats, want at most %d", bytes, beats, limit)
	}
}

func TestAgentReconnectsToTheSameAggregator(t *testing.T) {
	l := startLab(t, short(), nil)
	counted := l.startAgent(&machine{sets: 1}, nil)
	l.waitForSets(1)
	l.restart(l.store)
	l.waitFor("the agent", func() bool { return l.store.Summary(1, "a").GetConnected() })
	l.waitFor("a second report", func() bool { reports, _, _ := counted.seen(); return len(reports) == 2 })
	if reports, _, _ := counted.seen(); len(reports[1]) != 0 {
		t.Errorf("resent %v though the digests agree", reports[1])
	}
}

func TestRestartedAggregatorGetsEverything(t *testing.T) {
	l := startLab(t, short(), nil)
	node := &machine{sets: 1}
	counted := l.startAgent(node, nil)
	l.waitForSets(1)
	l.stop()
	node.set(9)
	l.restart(l.newStore())
	l.waitForSets(9)
	if got := l.store.Summary(1, "a"); got.GetKernelRelease() != "6.1.0" || got.GetAssessment().GetReady() != v1.Verdict_VERDICT_BLOCKED {
		t.Errorf("got %v", got)
	}
	reports, _, _ := counted.seen()
	if last := reports[len(reports)-1]; len(last) != 3 {
		t.Errorf("last report %v", last)
	}
}

func TestAgentWhoseClockIsADayOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": 24 * time.Hour, "behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, short(), nil)
			counted := l.startAgent(&machine{}, func(c *stream.Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			l.waitFor("heartbeats", func() bool { _, beats, _ := counted.seen(); return beats >= 6 })
			got := l.store.Summary(1, "a")
			if got.GetAssessment().GetReady() != v1.Verdict_VERDICT_READY || got.GetAssessment().GetPhase() != v1.Phase_PHASE_DONE {
				t.Errorf("got %v", got)
			}
			if skew := got.GetClockSkew().AsDuration(); (skew - off).Abs() > time.Minute {
				t.Errorf("skew %v", skew)
			}
			if seen := time.Since(got.GetLastSeen().AsTime()); seen.Abs() > time.Minute {
				t.Errorf("last seen %v ago", seen)
			}
		})
	}
}

func TestAgentSendsItsLists(t *testing.T) {
	l := startLab(t, short(), nil)
	var lines []string
	for i := range 40_000 {
		lines = append(lines, fmt.Sprintf("TCP 10.%d.%d.%d:443", 96+i/65536, i/256%256, i%256))
	}
	slices.Sort(lines)
	l.startAgent(&machine{lines: lines, sets: 1}, nil)
	l.waitForSets(1)
	if got := l.list("a"); got.GetError() != "" || !slices.Equal(got.GetItems(), lines) {
		t.Errorf("%d items, error %q", len(got.GetItems()), got.GetError())
	}
}

// Two agents that both say they are node a do not end in a frenzy: the one that was replaced waits for long.
func TestTwoRealAgentsOfOneNode(t *testing.T) {
	l := startLab(t, short(), nil)
	first := l.startAgent(&machine{sets: 1}, nil)
	l.waitForSets(1)
	l.startAgent(&machine{sets: 2}, nil)
	l.waitForSets(2)
	time.Sleep(time.Second)
	if reports, _, _ := first.seen(); len(reports) != 1 {
		t.Errorf("the first agent sent %d reports", len(reports))
	}
	if got := l.store.Summary(1, "a").GetInventory().GetIpsets(); got != 2 {
		t.Errorf("%d sets", got)
	}
}

// A thousand nodes are there within seconds, also under the race detector.
func TestThousandNodesOverTheWire(t *testing.T) {
	l := startLab(t, short(), nil)
	began := time.Now()
	var conn *grpc.ClientConn
	for i, name := range nodeNames(1000) {
		if i%maxStreams == 0 {
			conn = l.dial()
		}
		agent, err := v1.NewAgentServiceClient(conn).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := &caller{t: t, stream: agent}
		c.send(hello(name))
		c.recv()
		c.send(report(kernelSection("6.1.0"), setsSection(0)))
	}
	// They send no heartbeats, and silence begins after 0.3 s here; a node that never reported is neither.
	l.waitFor("all nodes", func() bool {
		answer := l.store.Readiness(1, fleet.Filter{}, "")
		return answer.GetReady()+answer.GetSilent() == 1000
	})
	if took := time.Since(began); took > patient {
		t.Errorf("it took %v", took)
	}
}
