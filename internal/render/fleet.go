package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Readiness writes the fleet's summary: counts, phases, what is left, and what to do next.
func Readiness(w io.Writer, fleet *offrampv1.GetReadinessResponse) error {
	var p page
	p.fleetHeader(fleet)
	p.phases(fleet.GetPhases())
	p.leftAndSilent(fleet)
	p.blank()
	if len(fleet.GetFindings()) == 0 {
		p.line(0, "Findings: none")
	} else {
		p.line(0, "Findings")
	}
	p.fleetFindings(fleet.GetFindings())
	return p.flush(w)
}

// Ready writes only what is in the way, and how to read the answer; reason says in a few words what the exit code stands
// for.
func Ready(w io.Writer, fleet *offrampv1.GetReadinessResponse, reason string) error {
	var p page
	p.fleetHeader(fleet)
	p.leftAndSilent(fleet)
	p.line(0, "Answer: %s", Clean(reason))
	p.fleetFindings(slices.DeleteFunc(slices.Clone(fleet.GetFindings()), func(finding *offrampv1.FindingCount) bool {
		return finding.GetSeverity() == offrampv1.Severity_SEVERITY_INFO
	}))
	return p.flush(w)
}

func (p *page) fleetHeader(fleet *offrampv1.GetReadinessResponse) {
	p.line(0, "Target %s, as of %s", Word(fleet.GetTarget()), moment(fleet.GetAt()))
	if fleet.GetNodes() == 0 {
		p.line(0, "Nodes: none has reported yet")
	} else {
		p.line(0, "Nodes: %s (%s ready, %s blocked, %s unknown)", number(fleet.GetNodes()), number(fleet.GetReady()),
			number(fleet.GetBlocked()), number(fleet.GetUnknown()))
	}
	if since := fleet.GetListeningSince(); since != nil {
		p.line(0, "The aggregator has listened for %s; nodes that did not connect since are not counted.",
			span(fleet.GetAt().AsTime().Sub(since.AsTime())))
	}
}

func (p *page) phases(phases []*offrampv1.PhaseCount) {
	parts := make([]string, 0, len(phases))
	for _, phase := range phases {
		parts = append(parts, Word(phase.GetPhase())+" "+number(phase.GetNodes()))
	}
	p.field(0, "Phases", strings.Join(parts, ", "))
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
	if fleet.GetSilent() > 0 {
		p.line(0, "Silent: %s", samples(fleet.GetSilent(), fleet.GetSilentSamples()))
	}
}

func (p *page) fleetFindings(findings []*offrampv1.FindingCount) {
	for i, finding := range findings {
		p.blank()
		p.line(2, "%s (%s): %s", Clean(finding.GetId()), Word(finding.GetSeverity()), Clean(finding.GetTitle()))
		p.line(4, "on %s", samples(finding.GetNodes(), finding.GetNodeSamples()))
		p.advice(finding.GetRemedy(), following(findings, i).GetRemedy())
	}
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
