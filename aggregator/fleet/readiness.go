package fleet

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxNames bounds the samples of node names in an answer (fleet.proto), maxGroups the pools, kernels and images.
const (
	maxNames  = 20
	maxGroups = 100
)

// Readiness judges the fleet, or the part of it that a filter takes, for one target, as of now. With a version, such as "1.40", it
// says whether the nodes could run that as well; what is no version gives no answer.
func (s *Store) Readiness(target offrampv1.Target, filter Filter, version string) *offrampv1.GetReadinessResponse {
	m := s.moment(target)
	sum, standings := s.count(m, filter)
	answer := sum.finish()
	answer.Steps = readiness.Steps(target, answer.GetClusterFindings(), standings)
	if version == "" {
		return answer
	}
	if target != offrampv1.Target_TARGET_NFTABLES {
		// Only the rules of this target know whether a kernel is too old for the mode that 1.40 chooses.
		_, standings = s.count(s.moment(offrampv1.Target_TARGET_NFTABLES), filter)
	}
	answer.Upgrade, _ = readiness.Upgrade(version, m.facts, standings)
	holdBack(answer.GetUpgrade(), answer.GetIncomplete())
	return answer
}

// count adds up the nodes that a filter takes, and returns each as the rules about whole fleets see it.
func (s *Store) count(m *moment, filter Filter) (*tally, []readiness.Standing) {
	sum := newTally(s, m)
	standings := make([]readiness.Standing, 0, len(m.nodes))
	for _, row := range s.rows(m) {
		if filter.selects(m, row.name) {
			sum.row(row)
			standings = append(standings, sum.last)
		}
	}
	return sum, standings
}

// tally adds up a fleet, node by node in the order of their names.
type tally struct {
	store    *Store
	moment   *moment
	answer   *offrampv1.GetReadinessResponse
	phases   map[offrampv1.Phase]uint64
	findings map[string]*findingTally
	groups   [3]map[string]*groupTally
	// last is the node that was added last, as the rules about whole fleets see it.
	last readiness.Standing
}

// findingTally remembers the last node, so that a node that has a finding twice counts once.
type findingTally struct {
	count *offrampv1.FindingCount
	last  string
}

type groupTally struct {
	count  *offrampv1.GroupCount
	phases map[offrampv1.Phase]uint64
}

func newTally(s *Store, m *moment) *tally {
	t := &tally{
		store: s, moment: m,
		answer: &offrampv1.GetReadinessResponse{
			Target: m.target, At: timestamppb.New(m.now), ListeningSince: timestamppb.New(s.since), Leftovers: &offrampv1.Leftovers{},
		},
		phases: map[offrampv1.Phase]uint64{}, findings: map[string]*findingTally{},
	}
	for i := range t.groups {
		t.groups[i] = map[string]*groupTally{}
	}
	return t
}

// row adds one node.
func (t *tally) row(r row) {
	object := t.moment.nodes[r.name]
	t.last = readiness.Standing{
		Node: r.name, Pool: object.GetPool(), Unschedulable: object.GetUnschedulable(), ControlPlane: controlPlane(object),
	}
	if r.node == nil {
		t.never(t.moment.neverSeen(object), object)
		return
	}
	r.node.mu.Lock()
	standing := r.node.stand(t.store, t.moment)
	shown := profile{}
	if r.node.profile != nil {
		shown = r.node.profile.key
	}
	t.last.Connections = r.node.connections
	r.node.mu.Unlock()
	t.last.Assessment, t.last.Silent, t.last.Soaking = standing.assessment, standing.silent, !standing.soaksUntil.IsZero()
	if standing.assessment.GetPhase() == offrampv1.Phase_PHASE_NOT_APPLICABLE {
		t.outside()
		return
	}
	t.add(r.name, standing)
	t.group(object.GetPool(), shown, standing.assessment)
}

// controlPlane reports whether a node carries the control plane.
func controlPlane(object *offrampv1.ClusterNode) bool {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd"} {
		if _, has := object.GetLabels()[label]; has {
			return true
		}
	}
	return false
}

func (t *tally) outside() {
	t.last.NotApplicable = true
	t.answer.NotApplicable++
	t.phases[offrampv1.Phase_PHASE_NOT_APPLICABLE]++
}

// never adds a node that never reported: unknown, unless it has no kube-proxy of Linux.
func (t *tally) never(summary *offrampv1.NodeSummary, object *offrampv1.ClusterNode) {
	if summary.GetAssessment().GetPhase() == offrampv1.Phase_PHASE_NOT_APPLICABLE {
		t.outside()
		return
	}
	t.last.Silent = true
	t.answer.NeverSeen++
	t.answer.NeverSeenSamples = sample(t.answer.GetNeverSeenSamples(), summary.GetNode())
	t.add(summary.GetNode(), standing{assessment: summary.GetAssessment()})
	t.group(object.GetPool(), profile{kernelRelease: object.GetKernelVersion(), osPrettyName: object.GetOsImage()}, summary.GetAssessment())
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
		t.answer.SilentSamples = sample(t.answer.GetSilentSamples(), name)
	}
	t.phases[node.assessment.GetPhase()]++
	t.addLeftovers(node.assessment.GetLeftovers())
	for _, finding := range node.assessment.GetFindings() {
		t.addFinding(name, finding)
	}
}

// group counts a node in its pool, with its kernel and its image.
func (t *tally) group(pool string, shown profile, assessment *offrampv1.Assessment) {
	for i, name := range []string{pool, shown.kernelRelease, shown.osPrettyName} {
		group := t.groups[i][name]
		if group == nil {
			group = &groupTally{&offrampv1.GroupCount{Name: name}, map[offrampv1.Phase]uint64{}}
			t.groups[i][name] = group
		}
		group.add(assessment)
	}
}

func (g *groupTally) add(assessment *offrampv1.Assessment) {
	g.count.Nodes++
	switch assessment.GetReady() {
	case offrampv1.Verdict_VERDICT_READY:
		g.count.Ready++
	case offrampv1.Verdict_VERDICT_BLOCKED:
		g.count.Blocked++
	default:
		g.count.Unknown++
	}
	if readiness.AnyLeft(assessment.GetLeftovers()) {
		g.count.WithLeftovers++
	}
	g.phases[assessment.GetPhase()]++
}

func (t *tally) addLeftovers(left *offrampv1.Leftovers) {
	if readiness.AnyLeft(left) {
		t.answer.WithLeftovers++
	}
	sum := t.answer.GetLeftovers()
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
	if finding.GetUndecided() {
		count.Undecided++
	}
	if finding.GetAccepted() != nil {
		count.Accepted++
	}
	count.NodeSamples = sample(count.GetNodeSamples(), name)
}

func (t *tally) finish() *offrampv1.GetReadinessResponse {
	t.answer.Phases = phaseCounts(t.phases)
	for _, found := range t.findings {
		t.answer.Findings = append(t.answer.Findings, found.count)
	}
	slices.SortFunc(t.answer.GetFindings(), func(a, b *offrampv1.FindingCount) int {
		return cmp.Or(cmp.Compare(b.GetSeverity(), a.GetSeverity()), cmp.Compare(a.GetId(), b.GetId()))
	})
	t.answer.Pools, t.answer.Kernels, t.answer.OsImages = groupCounts(t.groups[0]), groupCounts(t.groups[1]), groupCounts(t.groups[2])
	t.cluster()
	return t.answer
}

// cluster adds what the API says, and the verdict over all.
func (t *tally) cluster() {
	findings := readiness.AssessCluster(t.moment.facts, t.moment.target)
	readiness.AcceptFindings(findings, t.moment.acceptedOn(""))
	t.answer.ClusterFindings = findings
	t.answer.Unread = unread(t.moment.facts)
	t.answer.Incomplete = t.store.incomplete(t.moment)
	blocker := slices.ContainsFunc(findings, func(finding *offrampv1.Finding) bool {
		return finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER && !finding.GetUndecided() && finding.GetAccepted() == nil
	})
	switch {
	case blocker || t.answer.GetBlocked() > 0:
		t.answer.Verdict = offrampv1.Verdict_VERDICT_BLOCKED
	case t.answer.GetUnknown() > 0 || t.answer.GetNodes() == 0 || t.answer.GetIncomplete() != "":
		t.answer.Verdict = offrampv1.Verdict_VERDICT_UNKNOWN
	default:
		t.answer.Verdict = offrampv1.Verdict_VERDICT_READY
	}
}

// unread lists what of the API could not be read; one line "kubernetes" stands for all of it.
func unread(facts *offrampv1.ClusterFacts) []*offrampv1.ClusterSource {
	if facts == nil {
		return []*offrampv1.ClusterSource{{
			Kind: "kubernetes", State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "the Kubernetes API is not asked, or has not answered yet",
		}}
	}
	var left []*offrampv1.ClusterSource
	for _, source := range facts.GetSources() {
		if source.GetState() == offrampv1.SectionState_SECTION_STATE_UNREADABLE {
			left = append(left, source)
		}
	}
	return left
}

func phaseCounts(phases map[offrampv1.Phase]uint64) []*offrampv1.PhaseCount {
	counts := make([]*offrampv1.PhaseCount, 0, len(phases))
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		counts = append(counts, &offrampv1.PhaseCount{Phase: phase, Nodes: phases[phase]})
	}
	return counts
}

// groupCounts lists the largest groups, sorted by name.
func groupCounts(groups map[string]*groupTally) []*offrampv1.GroupCount {
	var counts []*offrampv1.GroupCount
	for _, group := range groups {
		group.count.Phases = phaseCounts(group.phases)
		counts = append(counts, group.count)
	}
	slices.SortFunc(counts, func(a, b *offrampv1.GroupCount) int {
		return cmp.Or(cmp.Compare(b.GetNodes(), a.GetNodes()), cmp.Compare(a.GetName(), b.GetName()))
	})
	counts = counts[:min(len(counts), maxGroups)]
	slices.SortFunc(counts, func(a, b *offrampv1.GroupCount) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return counts
}

func sample(names []string, name string) []string {
	if len(names) < maxNames {
		names = append(names, name)
	}
	return names
}
