package fleet

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// standing is what counts of a node at one moment, silence included.
type standing struct {
	assessment *offrampv1.Assessment
	silent     bool
}

// stand judges the node as of now. The assessment may be shared: it must not be changed. The caller holds n.mu.
func (n *node) stand(s *Store, target offrampv1.Target, now time.Time) standing {
	if n.seen.IsZero() {
		return standing{assessment: unknown(target)}
	}
	assessment := n.assessment(s, target)
	if !n.silent(now, s.silence()) {
		return standing{assessment: assessment}
	}
	// What was found stays in sight, but nothing is concluded from it any more.
	old := proto.CloneOf(assessment)
	old.Ready, old.Verify = offrampv1.Verdict_VERDICT_UNKNOWN, offrampv1.Verdict_VERDICT_UNKNOWN
	old.Phase = offrampv1.Phase_PHASE_SILENT
	return standing{assessment: old, silent: true}
}

// summary is one row of a list. The caller holds n.mu.
func (n *node) summary(s *Store, target offrampv1.Target, now time.Time) *offrampv1.NodeSummary {
	summary := &offrampv1.NodeSummary{
		Node:         n.name,
		AgentVersion: n.agentVersion,
		Assessment:   n.stand(s, target, now).assessment,
		Connected:    n.session != nil,
		ClockSkew:    durationpb.New(n.skew),
		Inventory:    &offrampv1.Inventory{},
	}
	if !n.seen.IsZero() {
		summary.LastSeen = timestamppb.New(n.seen)
	}
	if n.profile != nil {
		n.profile.key.describe(summary)
	}
	return summary
}

func (p profile) describe(summary *offrampv1.NodeSummary) {
	summary.KernelRelease, summary.OsPrettyName = p.kernelRelease, p.osPrettyName
	summary.KubeProxyVersion = p.kubeProxyVersion
	summary.Inventory = &offrampv1.Inventory{
		VirtualServers: p.virtualServers, ForeignVirtualServers: p.foreignVirtualServers,
		Ipsets: p.ipsets, IptablesChains: p.iptablesChains, NftablesTables: p.nftablesTables,
	}
}

// Summaries returns the nodes after the given name, at most limit of them, sorted by name, and whether there are more.
// What they hold may be shared with other answers: it must not be changed.
func (s *Store) Summaries(target offrampv1.Target, after string, limit int) (page []*offrampv1.NodeSummary, more bool) {
	s.asked[target].Store(true)
	now, sorted := s.config.Now(), s.byName()
	start, found := slices.BinarySearchFunc(sorted, after, func(n *node, name string) int { return strings.Compare(n.name, name) })
	if found {
		start++
	}
	rest := sorted[start:]
	more = len(rest) > limit
	if more {
		rest = rest[:limit]
	}
	page = make([]*offrampv1.NodeSummary, len(rest))
	for i, n := range rest {
		page[i] = n.lockedSummary(s, target, now)
	}
	return page, more
}

func (n *node) lockedSummary(s *Store, target offrampv1.Target, now time.Time) *offrampv1.NodeSummary {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.summary(s, target, now)
}

// Summary returns one node; nil when it is not known. What it holds must not be changed.
func (s *Store) Summary(target offrampv1.Target, name string) *offrampv1.NodeSummary {
	s.asked[target].Store(true)
	n := s.find(name)
	if n == nil {
		return nil
	}
	return n.lockedSummary(s, target, s.config.Now())
}

// Node returns one node and everything it said; nils when it is not known. The facts are the caller's own.
func (s *Store) Node(target offrampv1.Target, name string) (*offrampv1.NodeSummary, *offrampv1.NodeFacts) {
	s.asked[target].Store(true)
	n := s.find(name)
	if n == nil {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.summary(s, target, s.config.Now()), n.facts()
}

// Link returns the way to a node, nil when no stream of it is open.
func (s *Store) Link(name string) Link {
	n := s.find(name)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return nil
	}
	return n.session.link
}
