package render

import (
	"bytes"
	"io"
	"strings"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// NodeTable writes rows of nodes under one header. Columns are as wide as the widest cell so far, so that rows that come
// later still line up. Node names are never cut: people copy them.
type NodeTable struct {
	// Wide adds columns and says leftovers kind by kind; rows are then as long as they need to be.
	Wide bool
	// Now is what ages are told from.
	Now func() time.Time

	widths []int
}

// Write writes the header, if it was not written yet, and a row for each node.
func (t *NodeTable) Write(w io.Writer, nodes ...*offrampv1.NodeSummary) error {
	rows := make([][]string, 0, len(nodes)+1)
	if t.widths == nil {
		rows = append(rows, t.header())
	}
	for _, node := range nodes {
		rows = append(rows, t.row(node))
	}
	return t.writeRows(w, rows)
}

// Forgotten writes that the aggregator no longer knows a node.
func (t *NodeTable) Forgotten(w io.Writer, node string) error {
	return t.writeRows(w, [][]string{{Clean(node), "forgotten by the aggregator"}})
}

func (t *NodeTable) header() []string {
	header := []string{"NODE", "KERNEL", "MODE", "PHASE", "READY", "LEFTOVERS", "SEEN"}
	if t.Wide {
		header = append(header, "POOL", "OS", "KUBELET", "KUBE-PROXY", "AGENT", "CLOCK", "FINDINGS", "LEFT-BY-KIND")
	}
	return header
}

func (t *NodeTable) row(node *offrampv1.NodeSummary) []string {
	judged := node.GetAssessment()
	kernel := Clean(node.GetKernelRelease())
	if !t.Wide {
		kernel = kernelNumbers(kernel)
	}
	row := []string{
		Clean(node.GetNode()), kernel, Word(judged.GetRunningMode()), phaseWord(judged.GetPhase()), verdictWord(judged.GetReady()),
		leftoverCell(judged.GetLeftovers()), age(node.GetLastSeen(), t.Now()),
	}
	if t.Wide {
		row = append(row, Clean(node.GetPool()), Clean(node.GetOsPrettyName()), Clean(node.GetKubeletVersion()), Clean(node.GetKubeProxyVersion()), Clean(node.GetAgentVersion()),
			clockCell(node), findingIDs(judged), leftoverWords(judged.GetLeftovers()))
	}
	return row
}

// kernelNumbers is the leading numbers of a release, "5.14.0" of "5.14.0-427.13.1.el9_4.x86_64".
func kernelNumbers(release string) string {
	end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end <= 0 {
		return release
	}
	return strings.TrimRight(release[:end], ".")
}

// clockCell says by how much the node's clock is ahead of (or, with a minus, behind) the aggregator's.
func clockCell(node *offrampv1.NodeSummary) string {
	if node.GetClockSkew() == nil {
		return "?"
	}
	switch skew := node.GetClockSkew().AsDuration(); {
	case skew.Abs() < time.Second:
		return "0s"
	case skew < 0:
		return "-" + span(-skew)
	default:
		return "+" + span(skew)
	}
}

func findingIDs(judged *offrampv1.Assessment) string {
	ids := make([]string, 0, len(judged.GetFindings()))
	for _, finding := range judged.GetFindings() {
		ids = append(ids, finding.GetId())
	}
	return cleanAll(ids, ",")
}

func (t *NodeTable) writeRows(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		if len(row) > forgottenCells {
			t.widths = widen(t.widths, row)
		}
	}
	var out strings.Builder
	for _, row := range rows {
		out.WriteString(joined(row, t.widths))
	}
	return write(w, []byte(finish(w, out.String())))
}

// forgottenCells is how many cells the row of a forgotten node has; it widens no column.
const forgottenCells = 2

// Names writes the name of each node on a line of its own.
func Names(w io.Writer, nodes []*offrampv1.NodeSummary) error {
	var out bytes.Buffer
	for _, node := range nodes {
		out.WriteString(Clean(node.GetNode()) + "\n")
	}
	return write(w, out.Bytes())
}

// Nodes writes a table of nodes.
func Nodes(w io.Writer, nodes []*offrampv1.NodeSummary, wide bool, now time.Time) error {
	if len(nodes) == 0 {
		return write(w, []byte("No node has reported yet.\n"))
	}
	table := NodeTable{Wide: wide, Now: func() time.Time { return now }}
	return table.Write(w, nodes...)
}
