// Package inventory is what the kernel of a node holds, object by object: the exact counterpart of the counted facts.
//
// It is data alone. collect fills it, cleanup plans by it and backs up from it. Whose an object is, is told by
// internal/kubeproxy; only virtual servers carry their owner, since that takes the members of the ipsets.
package inventory

import (
	"net/netip"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Node is one reading of a node's kernel. A part that could not be read is empty and has its section in Problems.
type Node struct {
	// BootID is /proc/sys/kernel/random/boot_id, without the newline.
	BootID string
	// Servers is the IPVS table, sorted by protocol, address and port.
	Servers []VirtualServer
	// Link is kube-ipvs0, nil when there is no link of that name.
	Link *Link
	// Addresses are those of all other links, in the kernel's order.
	Addresses []Address
	// OwnRoutes are the routes that an earlier clean-up put on lo and that are still there (RouteProtocol tells them).
	OwnRoutes []LocalRoute
	// Rulesets are the four of iptables: nft and legacy, IPv4 and IPv6, in the order of SectionKind. What the kernel does
	// not have is left out.
	Rulesets []Ruleset
	// Tables are the native tables of nf_tables; those that hold iptables-nft's chains are in Rulesets.
	Tables []Table
	// Generation is that of nf_tables when Rulesets and Tables were read: the value to compare and swap with.
	Generation uint32
	// Sets are all ipsets, sorted by name.
	Sets []Set
	// Accounting are the names of the nfacct objects, sorted.
	Accounting []string
	// APIServers are the servers that the kubeconfig files of kubelet and kube-proxy name.
	APIServers []APIServer
	// Problems says, by section, why it could not be read or not twice alike.
	Problems map[offrampv1.SectionKind]string
	// KeptChanging are those of Problems that were read, and never twice alike: another try may do.
	KeptChanging []offrampv1.SectionKind
}

// RouteProtocol marks the routes that a clean-up puts on lo (rtm_protocol), so that a later one knows them for its own.
// No number that iproute2's rt_protos assigns.
const RouteProtocol = 207

// VirtualServer is one entry of the IPVS table.
type VirtualServer struct {
	// Protocol is "TCP", "UDP", "SCTP", "FWM" for a firewall mark, or "IP_n".
	Protocol string
	Address  netip.AddrPort // zero for FWM
	FWMark   uint32
	// Scheduler is "rr", ....
	Scheduler string
	// Flags is what /proc/net/ip_vs prints after the scheduler: "persistent 10800 FFFFFFFF", "ops", or "".
	Flags       string
	RealServers []RealServer
	Owner       kubeproxy.Owner
	// Reason is what the owner was concluded from.
	Reason string
}

// RealServer is one destination of a virtual server.
type RealServer struct {
	Address netip.AddrPort
	// Forward is "Masq", "Route", "Tunnel" or "Local", as /proc/net/ip_vs prints it.
	Forward string
	Weight  uint32
}

// Link is a network interface with its addresses and the local routes to them.
type Link struct {
	Name string
	// Kind is the rtnetlink kind, "dummy" for kube-proxy's own.
	Kind  string
	Index int
	Up    bool
	// Addresses of the link, in the kernel's order.
	Addresses []netip.Prefix
	// Routes of the table local that lead over this link, to its addresses.
	Routes []LocalRoute
}

// LocalRoute is a route of type local in the table local.
type LocalRoute struct {
	Address netip.Addr
	Link    string
	// Source is the preferred source; for IPv6 the kernel's own route has none, and the zero Addr stands for the address
	// itself.
	Source   netip.Addr
	Metric   uint32
	Protocol uint8
}

// SelfSource reports whether a new connection of the node to the address leaves with that address as its source.
func (r LocalRoute) SelfSource() bool { return !r.Source.IsValid() || r.Source == r.Address }

// Address is an address of a link other than kube-ipvs0.
type Address struct {
	Link     string
	Prefix   netip.Prefix
	Loopback bool
	Up       bool
	// Primary: the address that the default route of its family prefers.
	Primary bool
}

// Table is a native table of nf_tables.
type Table struct {
	kubeproxy.Table
	Handle uint64
	// OwnedByProcess: only the process that made it may change it.
	OwnedByProcess bool
	Chains         uint64
	Sets           uint64
	Rules          uint64
	// SetMatches are the ipsets that its rules look into through nft_compat, sorted.
	SetMatches []string
}

// Set is the header of an ipset.
type Set struct {
	kubeproxy.Set
	Index      uint16
	Revision   uint8
	References uint32
	Entries    uint32
}

// APIServer is what a kubeconfig file says of the API server.
type APIServer struct {
	// File is its path on the host.
	File string
	// Host is a name or an address, without brackets.
	Host string
	Port uint16
}
