package fleet

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestReadiness(t *testing.T) {
	s, c := newStore(t)
	for name, major := range map[string]uint32{"old-1": 5, "old-2": 5, "new-1": 6, "dirty": 6} {
		session, _, _ := join(s, name)
		sections := []*v1.SectionReport{kernelSection(t, major, fmt.Sprint(major, ".1")), setsSection(t, 0)}
		if name == "dirty" {
			sections[1] = setsSection(t, 7)
		}
		report(t, session, sections...)
	}
	join(s, "fresh")
	want := &v1.GetReadinessResponse{
		Target: nftables, At: timestamppb.New(c.Now()), ListeningSince: timestamppb.New(c.Now()),
		Nodes: 5, Ready: 2, Blocked: 2, Unknown: 1, WithLeftovers: 1, Leftovers: &v1.Leftovers{Ipsets: 7},
		Phases: []*v1.PhaseCount{
			{Phase: v1.Phase_PHASE_UNKNOWN, Nodes: 1}, {Phase: v1.Phase_PHASE_SWITCHED_DIRTY, Nodes: 1}, {Phase: v1.Phase_PHASE_DONE, Nodes: 3},
		},
		Findings: []*v1.FindingCount{{
			Id: "kernel-too-old", Severity: v1.Severity_SEVERITY_BLOCKER, Title: "kernel too old", Nodes: 2, NodeSamples: []string{"old-1", "old-2"},
		}},
	}
	got := s.Readiness(nftables, Filter{}, "")
	if got.GetVerdict() != blocked || len(got.GetClusterFindings()) != 1 || len(got.GetUnread()) != 1 || len(got.GetSteps()) != 2 {
		t.Errorf("of the fleet as a whole: %v", got)
	}
	got.Verdict, got.ClusterFindings, got.Unread, got.Steps, got.Incomplete = 0, nil, nil, nil, ""
	got.Pools, got.Kernels, got.OsImages = nil, nil, nil
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// Another target is judged when somebody asks.
	if got := s.Readiness(iptables, Filter{}, ""); got.GetReady() != 4 || got.GetUnknown() != 1 || len(got.GetFindings()) != 0 {
		t.Errorf("iptables: %v", got)
	}
}

func TestFindingCountsANodeOnce(t *testing.T) {
	sum := newTally(New(Config{Assess: rule}), &moment{})
	for i := range 30 {
		twice := []*v1.Finding{{Id: "x", Severity: v1.Severity_SEVERITY_INFO, Title: "mild"}, {Id: "x", Severity: v1.Severity_SEVERITY_WARNING, Title: "worse"}}
		sum.take(alike{assessment: &v1.Assessment{Findings: twice}}, fmt.Sprintf("n%02d", i))
	}
	got := sum.finish().GetFindings()[0]
	if got.GetNodes() != 30 || len(got.GetNodeSamples()) != 20 || got.GetTitle() != "worse" {
		t.Errorf("got %v", got)
	}
}

// Unchanged nodes are not assessed again, whoever asks.
func TestAssessmentsAreKept(t *testing.T) {
	var calls atomic.Int64
	s := New(Config{Assess: func(node *v1.NodeFacts, target v1.Target) *v1.Assessment {
		calls.Add(1)
		return rule(node, target)
	}})
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), proxySection(t))
	expect := func(when string, want int64) {
		t.Helper()
		if got := calls.Load(); got != want {
			t.Errorf("%s: %d assessments, want %d", when, got, want)
		}
	}
	expect("one report", 1)
	s.Readiness(nftables, Filter{}, "")
	s.Summaries(nftables, Filter{}, "", 10)
	expect("two questions", 1)
	s.Readiness(iptables, Filter{}, "")
	expect("another target", 2)
	beat := func(failures uint64, at int64) {
		t.Helper()
		if err := session.Heartbeat(&v1.Heartbeat{Sections: []*v1.SectionHeartbeat{{Kind: proxy, Volatile: syncs(failures, at)}}}); err != nil {
			t.Fatal(err)
		}
	}
	beat(0, 2)
	expect("a heartbeat with another read time", 2)
	beat(1, 3)
	expect("a heartbeat with another count, two targets", 4)
	report(t, session)
	expect("an empty report", 4)
}

func TestBrokenRuleCostsOneNode(t *testing.T) {
	s, _ := newStore(t)
	bad, _, _ := join(s, "bad")
	report(t, bad, kernelSection(t, 6, "panic"))
	good, _, _ := join(s, "good")
	report(t, good, kernelSection(t, 6, "6.1.0"))
	got := s.Readiness(nftables, Filter{}, "")
	if got.GetReady() != 1 || got.GetUnknown() != 1 || got.GetFindings()[0].GetId() != "assessment-failed" {
		t.Errorf("got %v", got)
	}
}

func TestSummariesPageByPage(t *testing.T) {
	s, _ := newStore(t)
	addNodes(t, s, 25)
	var names []string
	for after, more := "", true; more; {
		var page []*v1.NodeSummary
		page, more = s.Summaries(nftables, Filter{}, after, 10)
		for _, row := range page {
			names = append(names, row.GetNode())
		}
		after = names[len(names)-1]
	}
	if len(names) != 25 || names[0] != "node-000000" || names[24] != "node-000024" {
		t.Errorf("names %v", names)
	}
	// A node that the token names may have gone meanwhile.
	if page, more := s.Summaries(nftables, Filter{}, "node-000007x", 1); page[0].GetNode() != "node-000008" || !more {
		t.Errorf("page %v", page)
	}
	if page, more := s.Summaries(nftables, Filter{}, "zzz", 1); len(page) != 0 || more {
		t.Errorf("page %v", page)
	}
}

func TestNode(t *testing.T) {
	s, _ := newStore(t)
	addNodes(t, s, 1)
	summary, node := s.Node(nftables, "node-000000")
	if summary.GetInventory().GetIpsets() != 17 || summary.GetKubeProxyVersion() != "v1.33.1" || len(node.GetSections()) != 3 {
		t.Errorf("got %v %v", summary, node)
	}
	if node.GetSections()[0].GetStable().GetKernel().GetRelease() != "6.1.0" || node.GetAgentVersion() != "v0.1.0" {
		t.Errorf("facts %v", node)
	}
	if summary, node := s.Node(nftables, "nobody"); summary != nil || node != nil {
		t.Error("a node that nobody heard of")
	}
}

func TestEqualSectionsAreKeptOnce(t *testing.T) {
	s, _ := newStore(t)
	addNodes(t, s, 100)
	if s.sections.size() != 102 || s.assessments.size() != 1 || s.profiles.size() != 1 {
		t.Errorf("kept: %d sections, %d assessments, %d profiles", s.sections.size(), s.assessments.size(), s.profiles.size())
	}
}

// A thousand nodes in well under a second, most of it encoding by the test itself.
func TestThousandNodes(t *testing.T) {
	began := time.Now()
	s, _ := newStore(t)
	addNodes(t, s, 1000)
	if got := s.Readiness(nftables, Filter{}, ""); got.GetNodes() != 1000 || got.GetReady() != 1000 {
		t.Errorf("got %v", got)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestMemoryPerNode(t *testing.T) {
	// Sections of their own, volatile parts, the node itself: the budget for all of a node's state is 16 KiB, of the 64 KiB
	// that a node may cost with its stream.
	if got := bytesPerNode(t, 2000); got > 8<<10 {
		t.Errorf("%d bytes per node", got)
	}
}

func bytesPerNode(t testing.TB, nodes int) int64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, _ := newStore(t)
	addFullNodes(t, s, nodes)
	s.Readiness(nftables, Filter{}, "")
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(s)
	return (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(nodes)
}

// addFullNodes makes nodes that report every section: kernel, kube-proxy and addresses differ from node to node, as they do
// (boot id, process id, addresses), the rest is alike. Heartbeats renew all volatile parts.
func addFullNodes(t testing.TB, s *Store, nodes int) {
	t.Helper()
	for i := range nodes {
		session, _, _ := join(s, fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255))
		var sections []*v1.SectionReport
		beat := &v1.Heartbeat{Now: timestamppb.New(time.Unix(1, 0))}
		for _, kind := range facts.Kinds() {
			section := encode(t, kind, fullSection(kind, i))
			section.Volatile = &v1.SectionVolatile{ReadAt: timestamppb.New(time.Unix(1_800_000_000, 5e8)), ReadTook: durationpb.New(time.Millisecond), Attempts: 1}
			sections = append(sections, section)
			beat.Sections = append(beat.Sections, &v1.SectionHeartbeat{Kind: kind, Volatile: section.GetVolatile()})
		}
		report(t, session, sections...)
		if err := session.Heartbeat(beat); err != nil {
			t.Fatal(err)
		}
	}
}

func fullSection(kind v1.SectionKind, i int) *v1.SectionStable {
	stable := &v1.SectionStable{State: v1.SectionState_SECTION_STATE_PRESENT}
	switch kind {
	case kernel:
		stable.Content = &v1.SectionStable_Kernel{Kernel: &v1.KernelFacts{
			Release: "6.1.0-28-cloud-amd64", Version: "#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1 (2024-11-22)", Machine: "x86_64", Major: 6, Minor: 1,
			OsId: "debian", OsVersionId: "12", OsPrettyName: "Debian GNU/Linux 12 (bookworm)", BootId: fmt.Sprintf("%032x", i)}}
	case proxy:
		stable.Content = &v1.SectionStable_KubeProxy{KubeProxy: &v1.KubeProxyFacts{Version: "v1.33.1", Processes: []*v1.KubeProxyProcess{{
			Pid: int32(i), Name: "kube-proxy", Args: []string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", fmt.Sprint("--hostname-override=node-", i)}}},
			Endpoints: []*v1.KubeProxyEndpoint{{Url: "http://127.0.0.1:10249/proxyMode", Status: 200}, {Url: "http://127.0.0.1:10249/metrics", Status: 200}}}}
	case v1.SectionKind_SECTION_KIND_ADDRESSES:
		content := &v1.AddressesFacts{Count: 3}
		for nic := range 3 {
			content.Samples = append(content.Samples, &v1.NodeAddress{Interface: fmt.Sprint("eth", nic), Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), PrefixLength: 24})
		}
		stable.Content = &v1.SectionStable_Addresses{Addresses: content}
	default:
		stable.State = v1.SectionState_SECTION_STATE_ABSENT
	}
	return stable
}

func BenchmarkMemoryPerNode(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(bytesPerNode(b, 20_000)), "bytes/node")
	}
}

func BenchmarkReadiness10000(b *testing.B) {
	s, _ := newStore(b)
	addNodes(b, s, 10_000)
	s.Readiness(nftables, Filter{}, "")
	for b.Loop() {
		s.Readiness(nftables, Filter{}, "")
	}
}

func BenchmarkReport(b *testing.B) {
	s, _ := newStore(b)
	session := addNodes(b, s, 1)[0]
	changing := []*v1.SectionReport{setsSection(b, 1), setsSection(b, 2)}
	for i := 0; b.Loop(); i++ {
		report(b, session, changing[i%2])
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	s, _ := newStore(b)
	session := addNodes(b, s, 1)[0]
	for i := int64(0); b.Loop(); i++ {
		if err := session.Heartbeat(&v1.Heartbeat{Sections: []*v1.SectionHeartbeat{{Kind: proxy, Volatile: syncs(0, i)}}}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestUnknownTextIsBounded(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	err := session.Report(&v1.Report{Sections: []*v1.SectionReport{kernelSection(t, 6, strings.Repeat("6", 5000))}})
	if err == nil {
		t.Error("a release of 5,000 bytes was taken")
	}
}
