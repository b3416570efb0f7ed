package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ServiceHead writes what the cluster says of a Service.
func ServiceHead(w io.Writer, service *offrampv1.ClusterService) error {
	var p page
	p.line(0, "Service %s/%s, %s%s", Clean(service.GetNamespace()), Clean(service.GetName()), orUnknown(service.GetType()), affinity(service))
	addresses := slices.Concat(service.GetClusterIps(), service.GetExternalIps(), service.GetLoadBalancerIps())
	if len(addresses) > 0 {
		p.line(0, "Addresses: %s", cleanAll(addresses, ", "))
	}
	ports := make([]string, 0, len(service.GetPorts()))
	for _, port := range service.GetPorts() {
		text := fmt.Sprintf("%s %d", Clean(port.GetProtocol()), port.GetPort())
		if port.GetNodePort() > 0 {
			text += fmt.Sprintf(" (node port %d)", port.GetNodePort())
		}
		ports = append(ports, text)
	}
	p.field(0, "Ports", strings.Join(ports, ", "))
	if len(addresses) == 0 && service.GetHeadless() {
		p.line(0, "It is headless: no proxy has anything for it.")
	}
	p.blank()
	return p.flush(w)
}

func affinity(service *offrampv1.ClusterService) string {
	if service.GetSessionAffinity() {
		return ", session affinity"
	}
	return ""
}

// NodeService writes what one node has for a Service: in one line, or with every entry when wide.
func NodeService(w io.Writer, node *offrampv1.NodeService, wide bool) error {
	var p page
	p.line(0, "%s (%s): %s", strong.on(Clean(node.GetNode())), Word(node.GetRunningMode()), nodeServiceWords(node))
	if wide {
		for _, entry := range node.GetEntries() {
			p.line(4, "%s", Clean(strings.TrimSpace(entry.GetText())))
			for _, name := range entry.GetNames() {
				p.line(8, "%s", Clean(name))
			}
		}
	}
	return p.flush(w)
}

// nodeServiceWords counts a node's entries by kind, "1 virtual server, 3 real servers with 12 active and 0 inactive
// connections", and says what went wrong.
func nodeServiceWords(node *offrampv1.NodeService) string {
	var kinds []string
	number := map[string]uint64{}
	var active, inactive uint64
	for _, entry := range node.GetEntries() {
		if number[entry.GetKind()] == 0 {
			kinds = append(kinds, entry.GetKind())
		}
		number[entry.GetKind()]++
		active, inactive = active+entry.GetActiveConnections(), inactive+entry.GetInactiveConnections()
	}
	parts := make([]string, 0, len(kinds)+1)
	for _, kind := range kinds {
		text := count(number[kind], orUnknown(kind))
		if kind == realServer {
			text += fmt.Sprintf(" with %d active and %d inactive connections", active, inactive)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 && node.GetError() == "" {
		parts = append(parts, "nothing")
	}
	if node.GetError() != "" {
		parts = append(parts, bad.on("no whole answer: "+Clean(node.GetError())))
	}
	return strings.Join(parts, ", ")
}

// realServer is the kind of an entry that counts connections (fleet.proto).
const realServer = "real server"

// balance is one real server over the nodes.
type balance struct {
	name   string
	active uint64
	nodes  []nodeConnections
}

type nodeConnections struct {
	node   string
	active uint64
}

// Balance writes the connections of each real server by node: least-connection counts within one node alone, and here is
// where that shows. Where no node has a real server nothing is written.
func Balance(w io.Writer, nodes []*offrampv1.NodeService) error {
	all := balances(nodes)
	if len(all) == 0 {
		return nil
	}
	var p page
	p.blank()
	p.line(0, "Active connections of each real server, by node")
	for _, one := range all {
		parts := make([]string, 0, len(one.nodes))
		for _, on := range one.nodes {
			parts = append(parts, fmt.Sprintf("%s %d", on.node, on.active))
		}
		p.line(2, "%s: %d (%s)", one.name, one.active, strings.Join(parts, ", "))
	}
	return p.flush(w)
}

func balances(nodes []*offrampv1.NodeService) []*balance {
	known := map[string]*balance{}
	var all []*balance
	for _, node := range nodes {
		for _, entry := range node.GetEntries() {
			if entry.GetKind() != realServer {
				continue
			}
			name := realServerName(entry)
			if known[name] == nil {
				known[name] = &balance{name: name}
				all = append(all, known[name])
			}
			one := known[name]
			one.active += entry.GetActiveConnections()
			one.nodes = append(one.nodes, nodeConnections{Clean(node.GetNode()), entry.GetActiveConnections()})
		}
	}
	for _, one := range all {
		slices.SortStableFunc(one.nodes, func(a, b nodeConnections) int { return cmp.Compare(a.node, b.node) })
	}
	slices.SortFunc(all, func(a, b *balance) int { return cmp.Compare(a.name, b.name) })
	return all
}

// realServerName is the address of a real server, with the name that stands for it: the line's first words up to what counts.
func realServerName(entry *offrampv1.ServiceEntry) string {
	text := strings.TrimPrefix(strings.TrimSpace(entry.GetText()), "-> ")
	if words := strings.Fields(text); len(words) > 0 {
		text = strings.TrimSuffix(words[0], ",")
	}
	for _, name := range entry.GetNames() {
		if _, who, found := strings.Cut(name, " is "); found {
			return Clean(text + " (" + who + ")")
		}
	}
	return Clean(text)
}

// ServiceEnd writes who answered and who did not.
func ServiceEnd(w io.Writer, summary *offrampv1.ServiceSummary) error {
	var p page
	p.blank()
	p.line(0, "%s of %s answered.", number(summary.GetAnswered()), count(summary.GetAsked(), "node"))
	if silent := summary.GetAsked() - min(summary.GetAsked(), summary.GetAnswered()); silent > 0 {
		p.line(0, "Not (wholly) answered: %s", samples(silent, summary.GetSilentSamples()))
	}
	p.mayMiss(summary.GetIncomplete())
	return p.flush(w)
}
