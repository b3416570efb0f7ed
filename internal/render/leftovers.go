package render

import (
	"io"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Leftovers writes which nodes have what, and how much that is in all. nodes are those with leftovers; fleet sums up the same
// selection.
func Leftovers(w io.Writer, nodes []*offrampv1.NodeSummary, fleet *offrampv1.GetReadinessResponse) error {
	var p page
	if len(nodes) == 0 {
		p.line(0, "No node is known to have leftovers.")
	} else {
		p.grid(0, leftoverRows(nodes))
		p.blank()
		p.line(0, "%s of %s: %s", number(uint64(len(nodes))), count(fleet.GetNodes(), "node"), leftoverWords(fleet.GetLeftovers()))
	}
	if fleet.GetLeftovers().GetUndecided() {
		p.line(0, "On some nodes it could not be told what is left: kubectl offramp nodes")
	}
	p.missing(fleet)
	if len(nodes) > 0 {
		p.line(0, "What to do: kubectl offramp cleanup NODE, or drain and reboot it")
	}
	return p.flush(w)
}

func leftoverRows(nodes []*offrampv1.NodeSummary) [][]string {
	rows := append(make([][]string, 0, 1+len(nodes)), []string{"NODE", "MODE", "SERVERS", "LINK", "ADDRS", "IPSETS", "CHAINS", "JUMPS", "TABLES", "MORE"})
	for _, node := range nodes {
		left, more := node.GetAssessment().GetLeftovers(), "no"
		if left == nil || left.GetUndecided() {
			more = "?"
		}
		rows = append(rows, []string{
			Clean(node.GetNode()), Word(node.GetAssessment().GetRunningMode()), digits(left.GetVirtualServers()), digits(left.GetLinks()),
			digits(left.GetLinkAddresses()), digits(left.GetIpsets()), digits(left.GetChains()), digits(left.GetJumps()), digits(left.GetTables()), more,
		})
	}
	return rows
}

// LeftoverWords lists in one line what there is of each kind, such as "85 virtual servers, 1 link".
func LeftoverWords(left *offrampv1.Leftovers) string { return leftoverWords(left) }
