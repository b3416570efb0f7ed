package render

import (
	"fmt"
	"io"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Changes writes what happened, newest first, and which nodes do not remember that far back.
func Changes(w io.Writer, answer *offrampv1.ListChangesResponse) error {
	var p page
	if len(answer.GetChanges()) == 0 {
		p.line(0, "No change is remembered.")
	}
	for _, change := range answer.GetChanges() {
		p.line(0, "%s  %s  %s: %s", moment(change.GetAt()), Clean(change.GetNode()), Clean(change.GetKind()), Clean(change.GetWhat()))
	}
	if answer.GetIncomplete() > 0 {
		p.line(0, "Not complete: %s", samples(answer.GetIncomplete(), answer.GetIncompleteSamples()))
		p.line(4, "what they remember does not reach back that far")
	}
	p.mayMiss(answer.GetNodesMissing())
	return p.flush(w)
}

// ChangesCSV writes a row for each change.
func ChangesCSV(w io.Writer, changes []*offrampv1.Change) error {
	rows := append(make([][]string, 0, 1+len(changes)), []string{"at", "node", "kind", "what"})
	for _, change := range changes {
		rows = append(rows, []string{moment(change.GetAt()), change.GetNode(), change.GetKind(), change.GetWhat()})
	}
	return CSV(w, rows)
}

// Difference says in words what is different about a node, one thing each; nothing when no difference is worth a line. before
// is nil for a node that is new.
func Difference(before, after *offrampv1.NodeSummary) []string {
	if before == nil {
		judged := after.GetAssessment()
		return []string{fmt.Sprintf("new: runs %s, phase %s, %s", Word(judged.GetRunningMode()), Word(judged.GetPhase()), Word(judged.GetReady()))}
	}
	var lines []string
	was, is := before.GetAssessment(), after.GetAssessment()
	for _, part := range []struct{ name, was, is string }{
		{"mode", Word(was.GetRunningMode()), Word(is.GetRunningMode())},
		{"phase", Word(was.GetPhase()), Word(is.GetPhase())},
		{"could go there", Word(was.GetReady()), Word(is.GetReady())},
		{"leftovers", leftoverCell(was.GetLeftovers()), leftoverCell(is.GetLeftovers())},
		{"kernel", Clean(before.GetKernelRelease()), Clean(after.GetKernelRelease())},
		{"kube-proxy", Clean(before.GetKubeProxyVersion()), Clean(after.GetKubeProxyVersion())},
		{"agent", Clean(before.GetAgentVersion()), Clean(after.GetAgentVersion())},
		{"connected", yesNo(before.GetConnected()), yesNo(after.GetConnected())},
	} {
		if part.was != part.is {
			lines = append(lines, fmt.Sprintf("%s: %s -> %s", part.name, orUnknown(part.was), orUnknown(part.is)))
		}
	}
	return append(lines, findingChanges(was, is)...)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func findingChanges(was, is *offrampv1.Assessment) []string {
	var lines []string
	for _, finding := range is.GetFindings() {
		if !hasFinding(was, finding.GetId()) {
			lines = append(lines, fmt.Sprintf("new finding: %s (%s)", Clean(finding.GetId()), Word(finding.GetSeverity())))
		}
	}
	for _, finding := range was.GetFindings() {
		if !hasFinding(is, finding.GetId()) {
			lines = append(lines, "no longer: "+Clean(finding.GetId()))
		}
	}
	return lines
}

func hasFinding(assessment *offrampv1.Assessment, id string) bool {
	return slices.ContainsFunc(assessment.GetFindings(), func(finding *offrampv1.Finding) bool { return finding.GetId() == id })
}
