package kubeproxy

import "net/netip"

// Family is the IP version of an artefact.
type Family uint8

// Families. FamilyAny is for kinds that have none (a bitmap:port set, a link).
const (
	FamilyAny Family = 0
	IPv4      Family = 4
	IPv6      Family = 6
)

// Chain is a chain of an iptables table, in either backend.
type Chain struct {
	Table string // "nat", "filter", "mangle", "raw", "security"
	Name  string
	Family
}

// Jump is a rule that ends in a jump or goto to a user-defined chain.
type Jump struct {
	Table string
	From  string // chain that holds the rule
	To    string // chain it jumps to
	Family
	Comment string // text of the comment match, "" when there is none
	// CtStateNew: the rule has exactly one conntrack match and it is "--ctstate NEW".
	CtStateNew bool
	// OtherMatches: the rule has any match besides the comment and that conntrack match (addresses, interfaces, protocol,
	// sets, marks, another ctstate, ...). kube-proxy's own jumps from built-in chains never have.
	OtherMatches bool
}

// Set is an ipset.
type Set struct {
	Name string
	Type string // "hash:ip,port", ...
	Family
}

// Table is a native nftables table.
type Table struct {
	Family string // "ip", "ip6", "inet", "arp", "bridge", "netdev"
	Name   string
}

// Link is a network interface.
type Link struct {
	Name string
	Type string // rtnetlink kind: "dummy", "bridge", ...
}

// VirtualServer is an entry of the IPVS table.
type VirtualServer struct {
	Protocol string         // "TCP", "UDP", "SCTP", or "FWM" for a firewall mark
	Address  netip.AddrPort // zero for FWM
	// OnlyMasquerading: it has no real server, or all of them use the forwarding method masquerade.
	OnlyMasquerading bool
	RealServers      int
}

// ServicePorts is what kube-proxy's ipsets say about Services; it decides whose a virtual server is.
type ServicePorts interface {
	// HasService reports whether address, protocol and port stand together in one of kube-proxy's hash:ip,port sets.
	HasService(protocol string, address netip.AddrPort) bool
	// HasNodePort reports whether protocol and port stand in one of kube-proxy's node-port sets of the address' family.
	HasNodePort(protocol string, port uint16, family Family) bool
	// Unfilled reports whether kube-proxy's sets of the family are there and name neither a Service nor a node port, as a
	// sync that failed leaves them: then that something is not in them says nothing.
	Unfilled(family Family) bool
}

// LocalAddresses is which addresses a node has, and where.
type LocalAddresses interface {
	// OnIPVSLink reports whether the address is on kube-ipvs0.
	OnIPVSLink(netip.Addr) bool
	// OnNode reports whether the address is on another link of the node.
	OnNode(netip.Addr) bool
}
