package fleet

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxNames bounds the samples of node names in an answer (fleet.proto).
const maxNames = 20

// Readiness judges the whole fleet for one target, as of now.
func (s *Store) Readiness(target offrampv1.Target) *offrampv1.GetReadinessResponse {
	s.asked[target].Store(true)
	now := s.config.Now()
	sum := tally{
		answer: &offrampv1.GetReadinessResponse{
			Target: target, At: timestamppb.New(now), ListeningSince: timestamppb.New(s.since),
			Leftovers: &offrampv1.Leftovers{},
		},
		phases:   map[offrampv1.Phase]uint64{},
		findings: map[string]*findingTally{},
	}
	for _, n := range s.byName() {
		n.mu.Lock()
		standing := n.stand(s, target, now)
		n.mu.Unlock()
		sum.add(n.name, standing)
	}
	return sum.finish()
}

// tally adds up a fleet, node by node in the order of their names.
type tally struct {
	answer   *offrampv1.GetReadinessResponse
	phases   map[offrampv1.Phase]uint64
	findings map[string]*findingTally
}

// findingTally remembers the last node, so that a node that has a finding twice counts once.
type findingTally struct {
	count *offrampv1.FindingCount
	last  string
}

func (t *tally) add(name string, node standing) {
	t.answer.Nodes++
	switch node.assessment.GetReady() {
	case offrampv1.Verdict_VERDICT_READY:
		t.answer.Ready++
	case offrampv1.Verdict_VERDICT_BLOCKED:
		t.answer.Blocked++
	default:
		t.answer.Unknown++
	}
	if node.silent {
		t.answer.Silent++
		t.answer.SilentSamples = sample(t.answer.SilentSamples, name)
	}
	t.phases[node.assessment.GetPhase()]++
	t.addLeftovers(node.assessment.GetLeftovers())
	for _, finding := range node.assessment.GetFindings() {
		t.addFinding(name, finding)
	}
}

func (t *tally) addLeftovers(left *offrampv1.Leftovers) {
	counts := left.GetVirtualServers() + left.GetLinks() + left.GetLinkAddresses() + left.GetIpsets() +
		left.GetIpsetEntries() + left.GetChains() + left.GetJumps() + left.GetTables()
	if counts > 0 {
		t.answer.WithLeftovers++
	}
	sum := t.answer.Leftovers
	sum.VirtualServers += left.GetVirtualServers()
	sum.Links += left.GetLinks()
	sum.LinkAddresses += left.GetLinkAddresses()
	sum.Ipsets += left.GetIpsets()
	sum.IpsetEntries += left.GetIpsetEntries()
	sum.Chains += left.GetChains()
	sum.Jumps += left.GetJumps()
	sum.Tables += left.GetTables()
	sum.Undecided = sum.GetUndecided() || left.GetUndecided()
}

// addFinding counts a node once per finding id. A finding that is worse on another node counts as what is worst.
func (t *tally) addFinding(name string, finding *offrampv1.Finding) {
	found := t.findings[finding.GetId()]
	if found == nil {
		found = &findingTally{count: &offrampv1.FindingCount{Id: finding.GetId()}}
		t.findings[finding.GetId()] = found
	}
	count := found.count
	if finding.GetSeverity() > count.GetSeverity() || count.GetNodes() == 0 {
		count.Severity, count.Title, count.Remedy = finding.GetSeverity(), finding.GetTitle(), finding.GetRemedy()
	}
	if found.last == name {
		return
	}
	found.last = name
	count.Nodes++
	count.NodeSamples = sample(count.GetNodeSamples(), name)
}

func (t *tally) finish() *offrampv1.GetReadinessResponse {
	for phase, nodes := range t.phases {
		t.answer.Phases = append(t.answer.Phases, &offrampv1.PhaseCount{Phase: phase, Nodes: nodes})
	}
	slices.SortFunc(t.answer.Phases, func(a, b *offrampv1.PhaseCount) int { return cmp.Compare(a.GetPhase(), b.GetPhase()) })
	for _, found := range t.findings {
		t.answer.Findings = append(t.answer.Findings, found.count)
	}
	slices.SortFunc(t.answer.Findings, func(a, b *offrampv1.FindingCount) int {
		return cmp.Or(cmp.Compare(b.GetSeverity(), a.GetSeverity()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return t.answer
}

func sample(names []string, name string) []string {
	if len(names) < maxNames {
		names = append(names, name)
	}
	return names
}
