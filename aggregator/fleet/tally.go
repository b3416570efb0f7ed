package fleet

import (
	"cmp"
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

// tally adds up a fleet: first, node by node in the order of their names, how many are alike, then what those are.
type tally struct {
	store  *Store
	moment *moment
	crowds map[alike]*crowd
	// inOrder are the crowds by their first nodes.
	inOrder []*crowd

	answer   *offrampv1.GetReadinessResponse
	phases   map[offrampv1.Phase]uint64
	findings map[string]*findingTally
	groups   [3]map[string]*groupTally
}

// alike is what nodes that count alike have in common.
type alike struct {
	assessment        *offrampv1.Assessment
	silent, neverSeen bool
	pool              string
	// profile is that of nodes that reported; kernel and image are what the API says of the others.
	profile       *interned[profile, struct{}]
	kernel, image string
}

// crowd are nodes that are alike.
type crowd struct {
	alike
	nodes uint64
	// names of the first of them, at most maxNames.
	names []string
}

// findingTally remembers the last crowd, so that nodes that have a finding twice count once.
type findingTally struct {
	count *offrampv1.FindingCount
	last  *crowd
}

type groupTally struct {
	count  *offrampv1.GroupCount
	phases map[offrampv1.Phase]uint64
}

func newTally(s *Store, m *moment) *tally {
	t := &tally{
		store: s, moment: m, crowds: map[alike]*crowd{},
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

// row takes one node in, and returns it as the rules about whole fleets see it.
func (t *tally) row(r row) readiness.Standing {
	one := readiness.Standing{
		Node: r.name, Pool: r.object.GetPool(), Unschedulable: r.object.GetUnschedulable(), ControlPlane: r.controlPlane,
	}
	like := alike{pool: one.Pool}
	if r.node == nil {
		like.neverSeen, like.kernel, like.image = true, r.object.GetKernelVersion(), r.object.GetOsImage()
		like.assessment, one.Silent = t.moment.neverSeen(r.object).GetAssessment(), true
	} else {
		r.node.mu.Lock()
		standing := r.node.stand(t.store, t.moment, r.object)
		like.profile, one.Connections = r.node.profile, r.node.connections
		r.node.mu.Unlock()
		like.assessment, like.silent = standing.assessment, standing.silent
		one.Assessment, one.Silent, one.Soaking = standing.assessment, standing.silent, !standing.soaksUntil.IsZero()
	}
	if one.NotApplicable = notApplicable(r.object); one.NotApplicable {
		t.answer.NotApplicable++
		t.phases[offrampv1.Phase_PHASE_NOT_APPLICABLE]++
		return one
	}
	t.take(like, r.name)
	return one
}

func (t *tally) take(like alike, name string) {
	c := t.crowds[like]
	if c == nil {
		c = &crowd{alike: like}
		t.crowds[like] = c
		t.inOrder = append(t.inOrder, c)
	}
	c.nodes++
	if len(c.names) < maxNames {
		c.names = append(c.names, name)
	}
}

func (t *tally) finish() *offrampv1.GetReadinessResponse {
	for _, c := range t.inOrder {
		t.add(c)
	}
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

func (t *tally) add(c *crowd) {
	t.answer.Nodes += c.nodes
	addVerdict(c, &t.answer.Ready, &t.answer.Blocked, &t.answer.Unknown)
	if c.silent {
		t.answer.Silent += c.nodes
		t.answer.SilentSamples = sample(t.answer.GetSilentSamples(), c.names)
	}
	if c.neverSeen {
		t.answer.NeverSeen += c.nodes
		t.answer.NeverSeenSamples = sample(t.answer.GetNeverSeenSamples(), c.names)
	}
	t.phases[c.assessment.GetPhase()] += c.nodes
	t.addLeftovers(c)
	for _, finding := range c.assessment.GetFindings() {
		t.addFinding(c, finding)
	}
	t.group(c)
}

func addVerdict(c *crowd, ready, blocked, unknown *uint64) {
	switch c.assessment.GetReady() {
	case offrampv1.Verdict_VERDICT_READY:
		*ready += c.nodes
	case offrampv1.Verdict_VERDICT_BLOCKED:
		*blocked += c.nodes
	default:
		*unknown += c.nodes
	}
}

func (t *tally) addLeftovers(c *crowd) {
	left, sum := c.assessment.GetLeftovers(), t.answer.GetLeftovers()
	if readiness.AnyLeft(left) {
		t.answer.WithLeftovers += c.nodes
	}
	sum.VirtualServers += c.nodes * left.GetVirtualServers()
	sum.Links += c.nodes * left.GetLinks()
	sum.LinkAddresses += c.nodes * left.GetLinkAddresses()
	sum.Ipsets += c.nodes * left.GetIpsets()
	sum.IpsetEntries += c.nodes * left.GetIpsetEntries()
	sum.Chains += c.nodes * left.GetChains()
	sum.Jumps += c.nodes * left.GetJumps()
	sum.Tables += c.nodes * left.GetTables()
	sum.Undecided = sum.GetUndecided() || left.GetUndecided()
}

// addFinding counts nodes once per finding id. A finding that is worse on another node counts as what is worst.
func (t *tally) addFinding(c *crowd, finding *offrampv1.Finding) {
	found := t.findings[finding.GetId()]
	if found == nil {
		found = &findingTally{count: &offrampv1.FindingCount{Id: finding.GetId()}}
		t.findings[finding.GetId()] = found
	}
	count := found.count
	if finding.GetSeverity() > count.GetSeverity() || count.GetNodes() == 0 {
		count.Severity, count.Title, count.Remedy = finding.GetSeverity(), finding.GetTitle(), finding.GetRemedy()
	}
	if found.last == c {
		return
	}
	found.last = c
	count.Nodes += c.nodes
	if finding.GetUndecided() {
		count.Undecided += c.nodes
	}
	if finding.GetAccepted() != nil {
		count.Accepted += c.nodes
	}
	count.NodeSamples = sample(count.GetNodeSamples(), c.names)
}

// group counts nodes in their pool, with their kernel and their image.
func (t *tally) group(c *crowd) {
	shown := profile{kernelRelease: c.kernel, osPrettyName: c.image}
	if c.profile != nil {
		shown = c.profile.key
	}
	for i, name := range []string{c.pool, shown.kernelRelease, shown.osPrettyName} {
		group := t.groups[i][name]
		if group == nil {
			group = &groupTally{&offrampv1.GroupCount{Name: name}, map[offrampv1.Phase]uint64{}}
			t.groups[i][name] = group
		}
		group.add(c)
	}
}

func (g *groupTally) add(c *crowd) {
	g.count.Nodes += c.nodes
	addVerdict(c, &g.count.Ready, &g.count.Blocked, &g.count.Unknown)
	if readiness.AnyLeft(c.assessment.GetLeftovers()) {
		g.count.WithLeftovers += c.nodes
	}
	g.phases[c.assessment.GetPhase()] += c.nodes
}

// sample adds names to those that are there; the first maxNames of all stay.
func sample(names, more []string) []string {
	names = append(names, more...)
	slices.Sort(names)
	return names[:min(len(names), maxNames)]
}
