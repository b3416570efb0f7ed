package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// worstShown is how many findings a summary shows.
const worstShown = 5

// Readiness writes the fleet's summary: the verdict, counts, phases, pools, what is left, the worst findings, and what to do
// next.
func Readiness(w io.Writer, fleet *offrampv1.GetReadinessResponse) error {
	var p page
	p.fleetHeader(fleet)
	p.phases(fleet.GetPhases())
	p.leftAndSilent(fleet)
	p.unread(fleet.GetUnread())
	p.pools(fleet.GetPools())
	p.clusterFindings(fleet.GetClusterFindings())
	findings := fleet.GetFindings()
	p.blank()
	if len(findings) == 0 {
		p.line(0, "Findings: none")
	} else {
		p.line(0, "Findings on nodes")
	}
	shown := findings[:min(len(findings), worstShown)]
	p.fleetFindings(shown)
	if rest := len(findings) - len(shown); rest > 0 {
		p.blank()
		p.line(2, "… and %s: kubectl offramp findings", count(uint64(rest), "more finding"))
	}
	p.nextStep(fleet.GetSteps())
	return p.flush(w)
}

// Ready writes only what is in the way and what to do next, and how to read the answer; reason says in a few words what the
// exit code stands for.
func Ready(w io.Writer, fleet *offrampv1.GetReadinessResponse, reason string) error {
	var p page
	p.fleetHeader(fleet)
	p.leftAndSilent(fleet)
	p.unread(fleet.GetUnread())
	p.upgrade(fleet.GetUpgrade())
	p.line(0, "Answer: %s", Clean(reason))
	p.clusterFindings(fleet.GetClusterFindings())
	p.fleetFindings(slices.DeleteFunc(slices.Clone(fleet.GetFindings()), func(finding *offrampv1.FindingCount) bool {
		return finding.GetSeverity() == offrampv1.Severity_SEVERITY_INFO
	}))
	p.nextStep(fleet.GetSteps())
	return p.flush(w)
}

func (p *page) fleetHeader(fleet *offrampv1.GetReadinessResponse) {
	p.line(0, "Target %s: %s, as of %s", Word(fleet.GetTarget()), verdictWord(fleet.GetVerdict()), moment(fleet.GetAt()))
	outside := ""
	if fleet.GetNotApplicable() > 0 {
		outside = fmt.Sprintf("; and %s without a kube-proxy of Linux", count(fleet.GetNotApplicable(), "node"))
	}
	if fleet.GetNodes() == 0 {
		p.line(0, "Nodes: none has reported yet%s", outside)
	} else {
		p.line(0, "Nodes: %s (%s ready, %s blocked, %s unknown)%s", number(fleet.GetNodes()), number(fleet.GetReady()),
			number(fleet.GetBlocked()), number(fleet.GetUnknown()), outside)
	}
	if since := fleet.GetListeningSince(); since != nil && nodesUnread(fleet.GetUnread()) {
		p.line(0, "The aggregator has listened for %s; nodes that did not connect since are not counted.",
			span(fleet.GetAt().AsTime().Sub(since.AsTime())))
	}
}

// nodesUnread reports whether the cluster's list of nodes is missing: then nobody knows of nodes that never reported.
func nodesUnread(unread []*offrampv1.ClusterSource) bool {
	return slices.ContainsFunc(unread, func(source *offrampv1.ClusterSource) bool {
		return source.GetKind() == "kubernetes" || source.GetKind() == "nodes"
	})
}

func (p *page) phases(phases []*offrampv1.PhaseCount) {
	if len(phases) > 0 {
		p.line(0, "Phases: %s", phaseCounts(phases))
	}
}

func phaseCounts(phases []*offrampv1.PhaseCount) string {
	parts := make([]string, 0, len(phases))
	for _, phase := range phases {
		parts = append(parts, phaseWord(phase.GetPhase())+" "+number(phase.GetNodes()))
	}
	return strings.Join(parts, ", ")
}

func (p *page) leftAndSilent(fleet *offrampv1.GetReadinessResponse) {
	left := ""
	if words := leftoverParts(fleet.GetLeftovers()); words != "" {
		left = ": " + words
	}
	p.line(0, "With leftovers: %s%s", count(fleet.GetWithLeftovers(), "node"), left)
	if fleet.GetLeftovers().GetUndecided() {
		p.line(4, "on some nodes it could not be told what is left")
	}
	p.missing(fleet)
}

// missing names the nodes that say nothing, and says where nodes may be missing altogether.
func (p *page) missing(fleet *offrampv1.GetReadinessResponse) {
	p.mayMiss(fleet.GetIncomplete())
	if fleet.GetSilent() > 0 {
		p.line(0, "Silent: %s", samples(fleet.GetSilent(), fleet.GetSilentSamples()))
	}
	if fleet.GetNeverSeen() > 0 {
		p.line(0, "Never reported: %s", samples(fleet.GetNeverSeen(), fleet.GetNeverSeenSamples()))
	}
}

func (p *page) unread(sources []*offrampv1.ClusterSource) {
	for _, source := range sources {
		p.line(0, "Could not be read: %s%s", Clean(source.GetKind()), colon(source.GetError()))
	}
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + Clean(text)
}

// poolsShown bounds the table of pools in a summary.
const poolsShown = 12

// pools writes a row for each pool, where there is more than one to tell apart.
func (p *page) pools(pools []*offrampv1.GroupCount) {
	if len(pools) == 0 || len(pools) == 1 && pools[0].GetName() == "" {
		return
	}
	rows := [][]string{{"POOL", "NODES", "READY", "BLOCKED", "UNKNOWN", "LEFTOVERS"}}
	for _, pool := range pools[:min(len(pools), poolsShown)] {
		rows = append(rows, []string{
			Clean(pool.GetName()), number(pool.GetNodes()), number(pool.GetReady()), number(pool.GetBlocked()),
			number(pool.GetUnknown()), number(pool.GetWithLeftovers()),
		})
	}
	p.blank()
	p.grid(0, rows)
	if rest := len(pools) - poolsShown; rest > 0 {
		p.line(0, "… and %s: -o json has them", count(uint64(rest), "more pool"))
	}
}

func (p *page) clusterFindings(findings []*offrampv1.Finding) {
	if len(findings) == 0 {
		return
	}
	p.blank()
	p.line(0, "Findings about the cluster")
	for i, finding := range findings {
		p.blank()
		p.finding(finding)
		p.advice(finding.GetRemedy(), following(findings, i).GetRemedy())
	}
}

func (p *page) fleetFindings(findings []*offrampv1.FindingCount) {
	for i, finding := range findings {
		p.blank()
		p.line(2, "%s (%s): %s", strong.on(Clean(finding.GetId())), severityWord(finding.GetSeverity()), Clean(finding.GetTitle()))
		p.line(4, "on %s%s", samples(finding.GetNodes(), finding.GetNodeSamples()), openAndAccepted(finding))
		p.advice(finding.GetRemedy(), following(findings, i).GetRemedy())
	}
}

// openAndAccepted says on how many of its nodes a finding is undecided or accepted.
func openAndAccepted(finding *offrampv1.FindingCount) string {
	text := ""
	if finding.GetUndecided() > 0 {
		text += fmt.Sprintf("; undecided on %s", number(finding.GetUndecided()))
	}
	if finding.GetAccepted() > 0 {
		text += fmt.Sprintf("; accepted on %s", number(finding.GetAccepted()))
	}
	return text
}

// samples says how many nodes there are and names some: "3 nodes: a, b, c", "40 nodes: a, b, … (38 more)".
func samples(nodes uint64, names []string) string {
	const shown = 5
	text := count(nodes, "node")
	names = names[:min(len(names), shown)]
	if len(names) == 0 {
		return text
	}
	text += ": " + cleanAll(names, ", ")
	if rest := nodes - min(nodes, uint64(len(names))); rest > 0 {
		text += fmt.Sprintf(", … (%s more)", number(rest))
	}
	return text
}

// Summary writes how a node reported, which is what the aggregator knows besides its facts.
func Summary(w io.Writer, node *offrampv1.NodeSummary) error {
	var p page
	connected := "not connected"
	if node.GetConnected() {
		connected = "connected"
	}
	p.line(0, "Reported: %s, last heard of at %s, clock %s", connected, moment(node.GetLastSeen()), clockCell(node))
	if node.GetNeverSeen() {
		p.line(0, "There is a Node object, but no agent ever reported for it.")
	}
	p.field(0, "Pool", node.GetPool())
	p.field(0, "Kubelet", node.GetKubeletVersion())
	if node.GetSoaksUntil() != nil {
		p.line(0, "Switched and clean; done if it stays so until %s", moment(node.GetSoaksUntil()))
	}
	if node.GetRebootedSinceSwitch() {
		p.line(0, "It has booted since its mode last changed.")
	}
	return p.flush(w)
}

// List writes the items of a list, one a line and nothing else.
func List(w io.Writer, list *offrampv1.NamedList) error {
	var p page
	for _, item := range list.GetItems() {
		p.text.WriteString(Clean(item) + "\n")
	}
	return p.flush(w)
}
