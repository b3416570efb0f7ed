package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/labels"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// surroundings is a cluster as its API tells it.
type surroundings struct {
	facts    *v1.ClusterFacts
	accepted []*v1.Acceptance
}

func (s *surroundings) Facts() *v1.ClusterFacts       { return s.facts }
func (s *surroundings) Acceptances() []*v1.Acceptance { return s.accepted }

func object(name, pool, system string) *v1.ClusterNode {
	return &v1.ClusterNode{Name: name, Pool: pool, OperatingSystem: system, KernelVersion: "6.6.0", KubeletVersion: "v1.37.2", Labels: map[string]string{"pool": pool}}
}

// newCluster is a fleet of five nodes: two that report, one that never did, one of Windows, one of a virtual kubelet.
func newCluster(t *testing.T) (*Store, *clock, *surroundings) {
	t.Helper()
	virtual := object("virtual", "blue", "linux")
	virtual.Virtual = true
	around := &surroundings{facts: &v1.ClusterFacts{Nodes: []*v1.ClusterNode{
		object("a", "blue", "linux"), object("b", "green", "linux"), object("quiet", "green", "linux"), object("win", "green", "windows"), virtual,
	}}}
	c := &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	s := New(Config{Assess: rule, Now: c.Now, Cluster: around})
	for _, name := range []string{"a", "b"} {
		session, _, _ := join(s, name)
		report(t, session, kernelSection(t, 5, "5.10"), setsSection(t, 0))
	}
	return s, c, around
}

func selecting(t *testing.T, text string) Filter {
	t.Helper()
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Filter{Selector: selector}
}

func TestNodesThatNeverReportedAreUnknown(t *testing.T) {
	s, _, _ := newCluster(t)
	got := s.Readiness(nftables, Filter{}, "")
	if got.GetNodes() != 3 || got.GetBlocked() != 2 || got.GetUnknown() != 1 || got.GetReady() != 0 || got.GetNeverSeen() != 1 ||
		strings.Join(got.GetNeverSeenSamples(), " ") != "quiet" || got.GetNotApplicable() != 2 {
		t.Errorf("got %v", got)
	}
	page, more := s.Summaries(nftables, Filter{}, "", 10)
	var rows []string
	for _, node := range page {
		rows = append(rows, fmt.Sprint(node.GetNode(), " ", node.GetPool(), " ", node.GetAssessment().GetPhase(), " ", node.GetNeverSeen()))
	}
	want := "a blue PHASE_DONE false|b green PHASE_DONE false|quiet green PHASE_UNKNOWN true|virtual blue PHASE_NOT_APPLICABLE true|win green PHASE_NOT_APPLICABLE true"
	if strings.Join(rows, "|") != want || more {
		t.Errorf("rows %q, want %q", strings.Join(rows, "|"), want)
	}
}

func TestPoolsAndSelectors(t *testing.T) {
	s, _, _ := newCluster(t)
	got := s.Readiness(nftables, Filter{}, "")
	if len(got.GetPools()) != 2 || got.GetPools()[1].GetName() != "green" || got.GetPools()[1].GetNodes() != 2 || got.GetPools()[1].GetUnknown() != 1 {
		t.Errorf("pools %v", got.GetPools())
	}
	if blue := s.Readiness(nftables, selecting(t, "pool=blue"), ""); blue.GetNodes() != 1 || blue.GetNotApplicable() != 1 || blue.GetVerdict() != blocked {
		t.Errorf("pool blue: %v", blue)
	}
	if page, _ := s.Summaries(nftables, selecting(t, "pool!=blue"), "", 10); len(page) != 3 || page[0].GetNode() != "b" {
		t.Errorf("not blue: %v", page)
	}
	filters := map[string]Filter{
		"a b":   {FindingID: "kernel-too-old"},
		"quiet": {Phases: []v1.Phase{v1.Phase_PHASE_UNKNOWN}},
		"":      {WithLeftovers: true},
	}
	for want, filter := range filters {
		page, _ := s.Summaries(nftables, filter, "", 10)
		var names []string
		for _, node := range page {
			names = append(names, node.GetNode())
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%+v takes %v, want %q", filter, names, want)
		}
	}
	if names := s.Names(selecting(t, "pool=green")); strings.Join(names, " ") != "b" {
		t.Errorf("names %v", names)
	}
}

func TestAcceptedFindings(t *testing.T) {
	s, c, around := newCluster(t)
	word := &v1.Acceptance{FindingId: "kernel-too-old", Selector: "pool=blue", Reason: "rebuilt next week", Until: timestamppb.New(c.Now().Add(time.Hour))}
	around.accepted = []*v1.Acceptance{word, {FindingId: "kernel-too-old", Selector: "((", Until: word.GetUntil()}}
	got := s.Readiness(nftables, Filter{}, "")
	if got.GetReady() != 1 || got.GetBlocked() != 1 || got.GetFindings()[0].GetNodes() != 2 || got.GetFindings()[0].GetAccepted() != 1 {
		t.Errorf("accepted on blue: %v", got)
	}
	if a := s.Summary(nftables, "a").GetAssessment(); a.GetReady() != ready || a.GetFindings()[0].GetAccepted().GetReason() != "rebuilt next week" {
		t.Errorf("node a: %v", a)
	}
	c.advance(time.Hour)
	session, _, _ := join(s, "a")
	report(t, session)
	if got := s.Summary(nftables, "a").GetAssessment(); got.GetFindings()[0].GetAccepted() != nil || got.GetReady() == ready {
		t.Errorf("the time is over, and it is still accepted: %v", got)
	}
}

// The first node of a pool soaks for eight hours, the next for a quarter of one; falling back to dirty begins anew.
func TestSoaking(t *testing.T) {
	s, c, _ := newCluster(t)
	sessions := map[string]*Session{}
	beat := func() {
		for _, session := range sessions {
			report(t, session)
		}
	}
	for _, name := range []string{"a", "b", "quiet"} {
		sessions[name], _, _ = join(s, name)
		report(t, sessions[name], kernelSection(t, 6, "6.1"), setsSection(t, 7))
	}
	phase := func(name string) v1.Phase { return s.Summary(nftables, name).GetAssessment().GetPhase() }
	if phase("b") != v1.Phase_PHASE_SWITCHED_DIRTY {
		t.Fatalf("b is %v", phase("b"))
	}
	report(t, sessions["b"], setsSection(t, 0))
	cleaned := c.Now()
	c.advance(time.Minute)
	report(t, sessions["quiet"], setsSection(t, 0))
	if b := s.Summary(nftables, "b"); phase("b") != v1.Phase_PHASE_SOAKING || !b.GetSoaksUntil().AsTime().Equal(cleaned.Add(8*time.Hour)) {
		t.Errorf("the first of its pool: %v", b)
	}
	if got := s.Readiness(nftables, Filter{}, ""); len(got.GetPhases()) == 0 || got.GetSteps()[len(got.GetSteps())-1].GetId() != "soak" {
		t.Errorf("steps %v", got.GetSteps())
	}
	c.advance(15 * time.Minute)
	beat()
	if phase("quiet") != v1.Phase_PHASE_DONE || phase("b") != v1.Phase_PHASE_SOAKING {
		t.Errorf("after a quarter of an hour: %v, %v", phase("quiet"), phase("b"))
	}
	report(t, sessions["b"], setsSection(t, 3))
	report(t, sessions["b"], setsSection(t, 0))
	// quiet is now the one that is clean for the longest time.
	if got := s.Summary(nftables, "b").GetSoaksUntil().AsTime(); !got.Equal(c.Now().Add(15 * time.Minute)) {
		t.Errorf("after falling back it soaks until %v", got)
	}
}

func TestAVersionThatIsAskedAbout(t *testing.T) {
	s, _, _ := newCluster(t)
	if got := s.Readiness(nftables, Filter{}, "1.40").GetUpgrade(); got.GetVersion() != "1.40" || got.GetVerdict() == 0 {
		t.Errorf("got %v", got)
	}
	if got := s.Readiness(nftables, Filter{}, "x").GetUpgrade(); got != nil {
		t.Errorf("an answer about no version: %v", got)
	}
}

// Whoever asks about iptables and a version hears the same of the version: an old kernel without a mode named does not start 1.40.
func TestTheAnswerAboutAVersionGoesByNoTarget(t *testing.T) {
	c := &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	s := New(Config{Now: c.Now, Assess: func(node *v1.NodeFacts, target v1.Target) *v1.Assessment {
		a := rule(node, target)
		a.RunningMode = v1.ProxyMode_PROXY_MODE_IPTABLES
		a.Findings = append(a.Findings, &v1.Finding{Id: "mode-not-explicit", Severity: v1.Severity_SEVERITY_WARNING})
		return a
	}})
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 5, "5.10"), setsSection(t, 0))
	for _, target := range []v1.Target{nftables, iptables} {
		if got := s.Readiness(target, Filter{}, "1.40").GetUpgrade(); got.GetVerdict() != blocked {
			t.Errorf("%v: %v", target, got)
		}
	}
}

// After a start nobody was heard of yet, and the API tells how many there are.
func TestExpected(t *testing.T) {
	s, c, around := newCluster(t)
	if got := s.Expected(); got != 5 {
		t.Errorf("%d nodes, want the 5 of the API", got)
	}
	around.facts = nil
	if got := s.Expected(); got != 2 {
		t.Errorf("%d nodes, want the 2 that were heard of", got)
	}
	if got := New(Config{Assess: rule, Now: c.Now}).Expected(); got != 0 {
		t.Errorf("%d nodes, want none", got)
	}
}
