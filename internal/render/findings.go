package render

import (
	"io"
	"strconv"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Findings writes every finding of the fleet and of the cluster, the worst first; wide adds what to do about each.
func Findings(w io.Writer, fleet *offrampv1.GetReadinessResponse, wide bool) error {
	var p page
	p.line(0, "Target %s, as of %s", Word(fleet.GetTarget()), moment(fleet.GetAt()))
	p.missing(fleet)
	p.unread(fleet.GetUnread())
	if len(fleet.GetClusterFindings())+len(fleet.GetFindings()) == 0 {
		p.line(0, "Findings: none")
	}
	for _, finding := range fleet.GetClusterFindings() {
		p.clusterFinding(finding, wide)
	}
	for _, finding := range fleet.GetFindings() {
		p.line(0, "%s (%s), %s%s", strong.on(Clean(finding.GetId())), severityWord(finding.GetSeverity()),
			count(finding.GetNodes(), "node"), openAndAccepted(finding))
		p.line(4, "%s", Clean(finding.GetTitle()))
		if wide {
			p.line(4, "on %s", samples(finding.GetNodes(), finding.GetNodeSamples()))
			p.field(4, "what to do", finding.GetRemedy())
		}
	}
	return p.flush(w)
}

func (p *page) clusterFinding(finding *offrampv1.Finding, wide bool) {
	note := ""
	if finding.GetUndecided() {
		note = "; undecided"
	}
	p.line(0, "%s (%s), the cluster%s", strong.on(Clean(finding.GetId())), severityWord(finding.GetSeverity()), note)
	p.line(4, "%s", Clean(finding.GetTitle()))
	p.accepted(4, finding.GetAccepted())
	if wide {
		for _, evidence := range finding.GetEvidence() {
			p.line(4, "- %s", Clean(evidence))
		}
		p.field(4, "what to do", finding.GetRemedy())
	}
}

// FindingsCSV writes a row for each finding.
func FindingsCSV(w io.Writer, fleet *offrampv1.GetReadinessResponse) error {
	rows := append(make([][]string, 0, 1+len(fleet.GetClusterFindings())+len(fleet.GetFindings())), []string{"id", "scope", "severity", "nodes", "undecided", "accepted", "title"})
	for _, finding := range fleet.GetClusterFindings() {
		rows = append(rows, []string{
			finding.GetId(), "cluster", Word(finding.GetSeverity()), "0", flag01(finding.GetUndecided()), flag01(finding.GetAccepted() != nil), finding.GetTitle(),
		})
	}
	for _, finding := range fleet.GetFindings() {
		rows = append(rows, []string{
			finding.GetId(), "node", Word(finding.GetSeverity()), digits(finding.GetNodes()), digits(finding.GetUndecided()), digits(finding.GetAccepted()), finding.GetTitle(),
		})
	}
	return CSV(w, rows)
}

func flag01(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

func digits(n uint64) string { return strconv.FormatUint(n, 10) }

// Acceptances writes accepted findings, those whose time is over marked.
func Acceptances(w io.Writer, acceptances []*offrampv1.Acceptance, now time.Time) error {
	var p page
	if len(acceptances) == 0 {
		p.line(0, "No finding is accepted.")
	}
	for i, acceptance := range acceptances {
		if i > 0 {
			p.blank()
		}
		p.acceptance(acceptance, now)
	}
	return p.flush(w)
}

func (p *page) acceptance(acceptance *offrampv1.Acceptance, now time.Time) {
	where := "on every node"
	if acceptance.GetSelector() != "" {
		where = "on nodes with " + Clean(acceptance.GetSelector())
	}
	ended := ""
	if until := acceptance.GetUntil(); until == nil || !until.AsTime().After(now) {
		ended = doubtful.on(" (over: it counts again)")
	}
	p.line(0, "%s: %s %s", orUnknown(acceptance.GetId()), strong.on(Clean(acceptance.GetFindingId())), where)
	p.line(4, "until %s%s", moment(acceptance.GetUntil()), ended)
	p.line(4, "by %s, %s: %s", orUnknown(acceptance.GetAuthor()), moment(acceptance.GetAt()), Clean(acceptance.GetReason()))
}
