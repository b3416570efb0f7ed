package render

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// CSV writes rows as RFC 4180 does, with plain line ends. Cells are safe for a terminal, and a cell that a spreadsheet would
// take for a formula begins with an apostrophe.
func CSV(w io.Writer, rows [][]string) error {
	var out bytes.Buffer
	writer := csv.NewWriter(&out)
	for _, row := range rows {
		safe := make([]string, len(row))
		for i, cell := range row {
			safe[i] = harmless(Clean(cell))
		}
		if err := writer.Write(safe); err != nil {
			return fmt.Errorf("writing a row: %w", err)
		}
	}
	writer.Flush()
	return write(w, out.Bytes())
}

func harmless(cell string) string {
	if _, err := strconv.ParseFloat(cell, 64); err == nil || cell == "" || !strings.ContainsRune("=+-@", rune(cell[0])) {
		return cell
	}
	return "'" + cell
}

// NodesCSV writes a row for each node. What could not be told is "unknown"; times are UTC.
func NodesCSV(w io.Writer, nodes []*offrampv1.NodeSummary) error {
	rows := append(make([][]string, 0, 1+len(nodes)), []string{
		"node", "pool", "kernel", "os", "kubelet", "kube_proxy", "agent", "mode", "phase", "ready", "verify",
		"virtual_servers", "links", "ipsets", "chains", "jumps", "tables", "leftovers_undecided", "connected", "last_seen", "findings",
	})
	for _, node := range nodes {
		judged := node.GetAssessment()
		left := judged.GetLeftovers()
		rows = append(rows, []string{
			node.GetNode(), node.GetPool(), node.GetKernelRelease(), node.GetOsPrettyName(), node.GetKubeletVersion(), node.GetKubeProxyVersion(), node.GetAgentVersion(),
			Word(judged.GetRunningMode()), Word(judged.GetPhase()), Word(judged.GetReady()), Word(judged.GetVerify()),
			digits(left.GetVirtualServers()), digits(left.GetLinks()), digits(left.GetIpsets()), digits(left.GetChains()), digits(left.GetJumps()), digits(left.GetTables()),
			strconv.FormatBool(left == nil || left.GetUndecided()), strconv.FormatBool(node.GetConnected()), moment(node.GetLastSeen()), findingList(judged),
		})
	}
	return CSV(w, rows)
}

func findingList(judged *offrampv1.Assessment) string {
	ids := make([]string, 0, len(judged.GetFindings()))
	for _, finding := range judged.GetFindings() {
		ids = append(ids, finding.GetId())
	}
	return strings.Join(ids, " ")
}
