package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Node writes everything about one node: each section in words, then what it means for the assessment's target.
func Node(w io.Writer, facts *offrampv1.NodeFacts, assessment *offrampv1.Assessment) error {
	var p page
	p.node(facts, assessment)
	return p.flush(w)
}

func (p *page) node(facts *offrampv1.NodeFacts, assessment *offrampv1.Assessment) {
	p.line(0, "Node %s, read by agent %s", orUnknown(facts.GetNode()), orUnknown(facts.GetAgentVersion()))
	p.blank()
	p.line(0, "What is there")
	for _, section := range facts.GetSections() {
		p.section(section)
	}
	if len(facts.GetSections()) == 0 {
		p.line(2, "nothing was reported")
	}
	if slices.ContainsFunc(facts.GetSections(), wantsRoot) {
		p.line(2, "What is unreadable here may be read by root alone: run the agent as root.")
	}
	p.blank()
	p.line(0, "What it means for target %s", Word(assessment.GetTarget()))
	p.meaning(assessment)
}

// Verify writes whether a node is at its target, and why (not).
func Verify(w io.Writer, node string, assessment *offrampv1.Assessment) error {
	var p page
	p.line(0, "Node %s, target %s: %s", orUnknown(node), Word(assessment.GetTarget()), verifyWords(assessment))
	p.common(assessment)
	p.findings(assessment.GetFindings())
	return p.flush(w)
}

func (p *page) meaning(assessment *offrampv1.Assessment) {
	p.line(2, "could it go there: %s", verdictWord(assessment.GetReady()))
	p.line(2, "is it there: %s", verifyWords(assessment))
	p.common(assessment)
	p.findings(assessment.GetFindings())
}

func (p *page) common(assessment *offrampv1.Assessment) {
	p.line(2, "phase: %s", phaseWord(assessment.GetPhase()))
	p.line(2, "running mode: %s", runningWords(assessment))
	p.line(2, "leftovers: %s", leftoverWords(assessment.GetLeftovers()))
}

// runningWords says when another mode runs than the target's, which alone keeps a node from being there.
func runningWords(assessment *offrampv1.Assessment) string {
	running, target := Word(assessment.GetRunningMode()), Word(assessment.GetTarget())
	if running == "unknown" || target == "unknown" || running == target {
		return running
	}
	return running + ", where the target is " + target
}

// verifyWords adds to the verdict that leftovers alone stand between a node and "clean".
func verifyWords(assessment *offrampv1.Assessment) string {
	word := verdictWord(assessment.GetVerify())
	if assessment.GetVerify() != offrampv1.Verdict_VERDICT_READY {
		return word
	}
	switch left := assessment.GetLeftovers(); {
	case left == nil, left.GetUndecided():
		return word + ", leftovers could not all be told"
	case total(left) > 0:
		return word + ", with leftovers"
	}
	return word + ", clean"
}

func (p *page) findings(findings []*offrampv1.Finding) {
	if len(findings) == 0 {
		p.line(2, "findings: none")
		return
	}
	p.line(2, "findings: %s", number(uint64(len(findings))))
	for i, finding := range findings {
		p.blank()
		p.finding(finding)
		next := following(findings, i)
		p.advice(finding.GetRemedy(), next.GetRemedy())
		if finding.GetRemedy() != next.GetRemedy() || finding.GetSource() != next.GetSource() {
			p.field(4, "source", finding.GetSource())
		}
	}
}

// following is the element after the i-th, and nil after the last.
func following[T any](all []*T, i int) *T {
	if i+1 < len(all) {
		return all[i+1]
	}
	return nil
}

// advice says what to do about a finding, unless the next one says the same: then it stands once, below both.
func (p *page) advice(remedy, next string) {
	if remedy != next {
		p.field(4, "what to do", remedy)
	}
}

func (p *page) finding(finding *offrampv1.Finding) {
	note := ""
	if finding.GetUndecided() {
		note = ", undecided"
	}
	p.line(2, "%s (%s%s): %s", strong.on(Clean(finding.GetId())), severityWord(finding.GetSeverity()), note, Clean(finding.GetTitle()))
	p.accepted(4, finding.GetAccepted())
	for _, evidence := range finding.GetEvidence() {
		p.line(4, "- %s", Clean(evidence))
	}
}

// accepted says that somebody vouches for a finding, and until when.
func (p *page) accepted(indent int, acceptance *offrampv1.Acceptance) {
	if acceptance != nil {
		p.line(indent, "accepted until %s by %s: %s", moment(acceptance.GetUntil()), orUnknown(acceptance.GetAuthor()), Clean(acceptance.GetReason()))
	}
}

// leftoverWords lists what there is of each kind.
func leftoverWords(left *offrampv1.Leftovers) string {
	words := leftoverParts(left)
	switch {
	case left == nil, left.GetUndecided() && words == "":
		return "could not be told"
	case left.GetUndecided():
		return words + ", and more of which it could not be told"
	case words == "":
		return "none"
	}
	return words
}

func leftoverParts(left *offrampv1.Leftovers) string {
	var parts []string
	for _, kind := range []struct {
		n    uint64
		name string
	}{
		{left.GetVirtualServers(), "virtual server"}, {left.GetLinks(), "link"}, {left.GetLinkAddresses(), "link address"},
		{left.GetIpsets(), "ipset"}, {left.GetIpsetEntries(), "ipset entry"}, {left.GetChains(), "chain"},
		{left.GetJumps(), "jump"}, {left.GetTables(), "table"},
	} {
		if kind.n > 0 {
			parts = append(parts, count(kind.n, kind.name))
		}
	}
	return strings.Join(parts, ", ")
}

// total counts artefacts. Addresses and entries go with their link and their sets, and are not counted again.
func total(left *offrampv1.Leftovers) uint64 {
	return left.GetVirtualServers() + left.GetLinks() + left.GetIpsets() + left.GetChains() + left.GetJumps() + left.GetTables()
}

// leftoverCell is the total for a table: "136", "0", "12+?" when there may be more, "?" when it could not be told.
func leftoverCell(left *offrampv1.Leftovers) string {
	switch n := total(left); {
	case left == nil, left.GetUndecided() && n == 0:
		return "?"
	case left.GetUndecided():
		return fmt.Sprintf("%d+?", n)
	default:
		return fmt.Sprintf("%d", n)
	}
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return Clean(text)
}
