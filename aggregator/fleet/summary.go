package fleet

import (
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

// stand judges the node as of a moment; object is the API's word on it, or nil. The assessment may be shared: it must not be
// changed. The caller holds n.mu.
func (n *node) stand(s *Store, m *moment, object *offrampv1.ClusterNode) standing {
	switch {
	case notApplicable(object):
		return standing{assessment: m.unheard(offrampv1.Phase_PHASE_NOT_APPLICABLE)}
	case n.seen.IsZero():
		return standing{assessment: m.unheard(offrampv1.Phase_PHASE_UNKNOWN)}
	}
	assessment := n.assessment(s, m.target)
	if n.silent(m.now, s.Silence()) {
		return standing{assessment: m.outdated(assessment), silent: true}
	}
	assessment = m.accept(assessment, object)
	if until := n.soaksUntil(s, m, object); !until.IsZero() && assessment.GetPhase() == offrampv1.Phase_PHASE_DONE {
		return standing{assessment: m.inPhase(assessment, offrampv1.Phase_PHASE_SOAKING), soaksUntil: until}
	}
	return standing{assessment: assessment}
}

// unheard is the assessment of a node that told nothing that counts.
func (m *moment) unheard(phase offrampv1.Phase) *offrampv1.Assessment {
	return m.derive(derived{phase: phase}, func() *offrampv1.Assessment { return inPhase(unknown(m.target), phase) })
}

func (m *moment) outdated(assessment *offrampv1.Assessment) *offrampv1.Assessment {
	return m.derive(derived{of: assessment, phase: offrampv1.Phase_PHASE_SILENT}, func() *offrampv1.Assessment { return outdated(assessment) })
}

func (m *moment) accept(assessment *offrampv1.Assessment, object *offrampv1.ClusterNode) *offrampv1.Assessment {
	accepted, which := m.acceptedOn(object)
	if len(accepted) == 0 {
		return assessment
	}
	return m.derive(derived{of: assessment, accepted: which}, func() *offrampv1.Assessment { return readiness.Accept(assessment, accepted) })
}

func (m *moment) inPhase(assessment *offrampv1.Assessment, phase offrampv1.Phase) *offrampv1.Assessment {
	return m.derive(derived{of: assessment, phase: phase}, func() *offrampv1.Assessment { return inPhase(assessment, phase) })
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

// summary is one row of a list; object is the API's word on the node, or nil. The caller holds n.mu.
func (n *node) summary(s *Store, m *moment, object *offrampv1.ClusterNode) *offrampv1.NodeSummary {
	standing := n.stand(s, m, object)
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
	assessment := m.unheard(offrampv1.Phase_PHASE_UNKNOWN)
	if notApplicable(object) {
		assessment = m.unheard(offrampv1.Phase_PHASE_NOT_APPLICABLE)
	}
	return &offrampv1.NodeSummary{
		Node: object.GetName(), Assessment: assessment, KernelRelease: object.GetKernelVersion(), OsPrettyName: object.GetOsImage(),
		KubeletVersion: object.GetKubeletVersion(), Pool: object.GetPool(), Inventory: &offrampv1.Inventory{}, NeverSeen: true,
	}
}

// Summaries returns the nodes after the given name that a filter takes, at most limit of them, sorted by name, and whether there
// may be more. Node objects for which no agent ever reported are among them. What they hold may be shared with other answers: it
// must not be changed.
func (s *Store) Summaries(target offrampv1.Target, filter Filter, name string, limit int) (page []*offrampv1.NodeSummary, more bool) {
	m := s.moment(target)
	for _, row := range after(s.rows(m), name) {
		if !filter.selects(row.object) {
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

func (r row) summary(s *Store, m *moment) *offrampv1.NodeSummary {
	if r.node == nil {
		return m.neverSeen(r.object)
	}
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return r.node.summary(s, m, r.object)
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
		return n.summary(s, m, m.nodes[name]), nil
	}
	return n.summary(s, m, m.nodes[name]), n.facts()
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
	for _, row := range s.rows(m) {
		if row.node != nil && filter.selects(row.object) {
			names = append(names, row.name)
		}
	}
	return names
}
