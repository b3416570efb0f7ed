package fleet

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// standing is what counts of a node at one moment, silence and the cluster's word included.
type standing struct {
	assessment *offrampv1.Assessment
	silent     bool
	soaksUntil time.Time
}

// stand judges the node as of a moment. The assessment may be shared: it must not be changed. The caller holds n.mu.
func (n *node) stand(s *Store, m *moment) standing {
	switch {
	case m.notApplicable(n.name):
		return standing{assessment: inPhase(unknown(m.target), offrampv1.Phase_PHASE_NOT_APPLICABLE)}
	case n.seen.IsZero():
		return standing{assessment: unknown(m.target)}
	}
	assessment := n.assessment(s, m.target)
	if n.silent(m.now, s.silence()) {
		return standing{assessment: outdated(assessment), silent: true}
	}
	assessment = readiness.Accept(assessment, m.acceptedOn(n.name))
	if until := n.soaksUntil(s, m); !until.IsZero() && assessment.GetPhase() == offrampv1.Phase_PHASE_DONE {
		return standing{assessment: inPhase(assessment, offrampv1.Phase_PHASE_SOAKING), soaksUntil: until}
	}
	return standing{assessment: assessment}
}

// outdated keeps in sight what was found on a node that is silent; nothing is concluded from it any more.
func outdated(assessment *offrampv1.Assessment) *offrampv1.Assessment {
	old := inPhase(assessment, offrampv1.Phase_PHASE_SILENT)
	old.Ready, old.Verify = offrampv1.Verdict_VERDICT_UNKNOWN, offrampv1.Verdict_VERDICT_UNKNOWN
	return old
}

// inPhase is the assessment in another phase: a copy, for assessments are shared.
func inPhase(assessment *offrampv1.Assessment, phase offrampv1.Phase) *offrampv1.Assessment {
	other := proto.CloneOf(assessment)
	other.Phase = phase
	return other
}

// summary is one row of a list. The caller holds n.mu.
func (n *node) summary(s *Store, m *moment) *offrampv1.NodeSummary {
	standing, object := n.stand(s, m), m.nodes[n.name]
	summary := &offrampv1.NodeSummary{
		Node:           n.name,
		AgentVersion:   n.agentVersion,
		Assessment:     standing.assessment,
		Connected:      n.session != nil,
		ClockSkew:      durationpb.New(n.skew),
		Inventory:      &offrampv1.Inventory{},
		Pool:           object.GetPool(),
		KubeletVersion: object.GetKubeletVersion(),
	}
	if !n.seen.IsZero() {
		summary.LastSeen = timestamppb.New(n.seen)
	}
	if !standing.soaksUntil.IsZero() {
		summary.SoaksUntil = timestamppb.New(standing.soaksUntil)
	}
	if n.profile != nil {
		n.profile.key.describe(summary)
	}
	return summary
}

func (p profile) describe(summary *offrampv1.NodeSummary) {
	summary.KernelRelease, summary.OsPrettyName = p.kernelRelease, p.osPrettyName
	summary.KubeProxyVersion = p.kubeProxyVersion
	summary.RebootedSinceSwitch = p.rebootedSinceSwitch
	summary.Inventory = &offrampv1.Inventory{
		VirtualServers: p.virtualServers, ForeignVirtualServers: p.foreignVirtualServers,
		Ipsets: p.ipsets, IptablesChains: p.iptablesChains, NftablesTables: p.nftablesTables,
	}
}

// neverSeen is the row of a Node object for which no agent ever reported.
func (m *moment) neverSeen(object *offrampv1.ClusterNode) *offrampv1.NodeSummary {
	assessment := unknown(m.target)
	if m.notApplicable(object.GetName()) {
		assessment.Phase = offrampv1.Phase_PHASE_NOT_APPLICABLE
	}
	return &offrampv1.NodeSummary{
		Node: object.GetName(), Assessment: assessment, KernelRelease: object.GetKernelVersion(), OsPrettyName: object.GetOsImage(),
		KubeletVersion: object.GetKubeletVersion(), Pool: object.GetPool(), Inventory: &offrampv1.Inventory{}, NeverSeen: true,
	}
}

// Summaries returns the nodes after the given name that a filter takes, at most limit of them, sorted by name, and whether there
// may be more. Node objects for which no agent ever reported are among them. What they hold may be shared with other answers: it
// must not be changed.
func (s *Store) Summaries(target offrampv1.Target, filter Filter, after string, limit int) (page []*offrampv1.NodeSummary, more bool) {
	m := s.moment(target)
	for _, row := range s.rows(m) {
		if row.name <= after || !filter.selects(m, row.name) {
			continue
		}
		summary := row.summary(s, m)
		if !filter.takes(summary.GetAssessment()) {
			continue
		}
		if len(page) == limit {
			return page, true
		}
		page = append(page, summary)
	}
	return page, false
}

// row is a node that reported, or only an object of the API.
type row struct {
	name   string
	node   *node
	object *offrampv1.ClusterNode
}

func (r row) summary(s *Store, m *moment) *offrampv1.NodeSummary {
	if r.node == nil {
		return m.neverSeen(r.object)
	}
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return r.node.summary(s, m)
}

// rows are all nodes, those that reported and those that never did, sorted by name.
func (s *Store) rows(m *moment) []row {
	sorted := s.byName()
	rows := make([]row, 0, max(len(sorted), len(m.nodes)))
	for _, n := range sorted {
		rows = append(rows, row{name: n.name, node: n})
	}
	for name, object := range m.nodes {
		_, reported := slices.BinarySearchFunc(sorted, name, func(n *node, name string) int { return strings.Compare(n.name, name) })
		if !reported {
			rows = append(rows, row{name: name, object: object})
		}
	}
	if len(rows) > len(sorted) {
		slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	}
	return rows
}

// Summary returns one node; nil when it is not known. What it holds must not be changed.
func (s *Store) Summary(target offrampv1.Target, name string) *offrampv1.NodeSummary {
	summary, _ := s.node(target, name, false)
	return summary
}

// Node returns one node and everything it said; nils when it is not known. The facts are the caller's own.
func (s *Store) Node(target offrampv1.Target, name string) (*offrampv1.NodeSummary, *offrampv1.NodeFacts) {
	return s.node(target, name, true)
}

func (s *Store) node(target offrampv1.Target, name string, withFacts bool) (*offrampv1.NodeSummary, *offrampv1.NodeFacts) {
	m := s.moment(target)
	n := s.find(name)
	if n == nil {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !withFacts {
		return n.summary(s, m), nil
	}
	return n.summary(s, m), n.facts()
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

// Names returns the names of the nodes that reported and that a selector takes, sorted.
func (s *Store) Names(filter Filter) []string {
	m := s.moment(offrampv1.Target_TARGET_NFTABLES)
	var names []string
	for _, n := range s.byName() {
		if filter.selects(m, n.name) {
			names = append(names, n.name)
		}
	}
	return names
}
