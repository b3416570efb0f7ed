package readiness

import (
	"net/netip"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Services answers whether a Service stands behind what a node has.
type Services struct {
	addresses map[netip.Addr]bool
	ports     map[servicePort]bool
}

type servicePort struct {
	protocol string
	address  netip.AddrPort
}

// IndexServices indexes Services that kube-proxy serves. Addresses that do not parse are left out: nothing on a node is theirs.
func IndexServices(services []*offrampv1.ClusterService) *Services {
	index := &Services{addresses: map[netip.Addr]bool{}, ports: map[servicePort]bool{}}
	for _, service := range services {
		if service.GetHeadless() || service.GetOtherProxy() || service.GetType() == "ExternalName" {
			continue
		}
		for _, text := range slices.Concat(service.GetClusterIps(), service.GetExternalIps(), service.GetLoadBalancerIps()) {
			address, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			index.addresses[address] = true
			for _, port := range service.GetPorts() {
				key := servicePort{strings.ToUpper(port.GetProtocol()), netip.AddrPortFrom(address, uint16(port.GetPort()&0xffff))}
				index.ports[key] = true
			}
		}
	}
	return index
}

// Unexplained returns the items of a digested list behind which no Service stands, in their order. Items that are nobody's
// business of Services (firewall marks) are left out; what cannot be understood counts as unexplained.
func (s *Services) Unexplained(name offrampv1.ListName, items []string) []string {
	var left []string
	for _, item := range items {
		if !s.explains(name, item) {
			left = append(left, item)
		}
	}
	return left
}

func (s *Services) explains(name offrampv1.ListName, item string) bool {
	if name == offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES {
		address, err := netip.ParseAddr(item)
		return err == nil && s.addresses[address]
	}
	protocol, text, _ := strings.Cut(item, " ")
	if protocol == "FWM" {
		return true
	}
	address, err := netip.ParseAddrPort(text)
	return err == nil && s.ports[servicePort{protocol, address}]
}

// Surroundings is what the cluster says about a node.
type Surroundings struct {
	// Unexplained holds, for each of the node's lists that was compared with the Services, the items behind which none stands.
	// A list that is missing was not compared.
	Unexplained map[offrampv1.ListName][]string
}

func serviceRules() []Rule {
	return []Rule{
		{
			ID:       "unexplained-virtual-servers",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "Virtual servers are there for which there is no Service",
			Severity: "warning while ipvs mode runs; info afterwards",
			Meaning:  "The Service was deleted, or kube-proxy missed it: whoever still uses the address reaches pods that may be somebody else's by now.",
			Remedy:   "Restart kube-proxy on this node while it runs ipvs mode; after the move, clean the node up.",
			Source:   "kubernetes/kubernetes 78421; the node's list of virtual servers against the Services of the API",
			check: unexplained(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, offrampv1.SectionKind_SECTION_KIND_IPVS,
				func(n *node) *offrampv1.ListDigest { return n.ipvs().GetList() }),
		},
		{
			ID:       "unexplained-addresses",
			Scope:    offrampv1.Scope_SCOPE_NODE,
			Title:    "kube-ipvs0 has addresses that no Service has",
			Severity: "warning while ipvs mode runs; info afterwards",
			Meaning:  "The node takes these addresses for its own and answers on every port that one of its daemons listens on; where another machine has such an address now, this node cannot reach it.",
			Remedy:   "Restart kube-proxy on this node while it runs ipvs mode; after the move, clean the node up.",
			Source:   "kubernetes/kubernetes 72236 and 78421; the link's addresses against the Services of the API",
			check: unexplained(offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES, offrampv1.SectionKind_SECTION_KIND_IPVS_LINK,
				func(n *node) *offrampv1.ListDigest { return n.link().GetList() }),
		},
	}
}

// unexplained is the check of one list. A list that nobody compared, for want of the API or of the list itself, cannot be told.
func unexplained(name offrampv1.ListName, kind offrampv1.SectionKind, list func(*node) *offrampv1.ListDigest) func(*node, offrampv1.Target) outcome {
	return func(n *node, _ offrampv1.Target) outcome {
		if !n.read(kind) {
			return unread()
		}
		if list(n).GetCount() == 0 {
			return quietly()
		}
		items, compared := n.around.Unexplained[name]
		if !compared {
			return unread()
		}
		items = slices.DeleteFunc(slices.Clone(items), n.foreignServer)
		switch {
		case len(items) == 0:
			return quietly()
		case n.running() == offrampv1.ProxyMode_PROXY_MODE_IPVS:
			return warn("", items...)
		default:
			return inform("", items...)
		}
	}
}

// foreignServer reports whether an item is a virtual server that is known to be somebody else's.
func (n *node) foreignServer(item string) bool {
	for _, server := range n.ipvs().GetSamples() {
		if item == serverItem(server) && !isOurs(server.GetOwner()) {
			return true
		}
	}
	return false
}

// serverItem is a virtual server as LIST_NAME_IPVS_VIRTUAL_SERVERS has it.
func serverItem(server *offrampv1.VirtualServer) string {
	address, err := netip.ParseAddr(server.GetAddress())
	if err != nil {
		return ""
	}
	return server.GetProtocol() + " " + netip.AddrPortFrom(address, uint16(server.GetPort()&0xffff)).String()
}
