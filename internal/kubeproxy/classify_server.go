package kubeproxy

import (
	"net/netip"
	"slices"
)

// VirtualServerOwner tells whose a virtual server is, and what that was concluded from in a few words.
// ports is nil when kube-proxy's sets could not be read: then nothing can be attributed to kube-proxy but its own probe
// (pkg/proxy/ipvs/supported.go). addresses is nil when the node's addresses could not be read. excluded is
// ipvs.excludeCIDRs: kube-proxy leaves what is in them to others, and so does this, whatever else speaks for kube-proxy
// (pkg/proxy/ipvs/proxier.go cleanLegacyService).
//
// The IPVS table has no owner field. A virtual server is kube-proxy's only if its address, protocol and port stand in
// kube-proxy's sets, or it is an address of the node with a node port of theirs, and every real server masquerades.
func VirtualServerOwner(
	server VirtualServer, ports ServicePorts, addresses LocalAddresses, excluded []netip.Prefix,
) (Owner, string) {
	switch {
	case server.Protocol == "FWM":
		return Foreign("fwmark"), "kube-proxy makes none with a firewall mark"
	case isIn(server.Address.Addr(), excluded):
		return Foreign("excluded"), "address in kube-proxy's excludeCIDRs"
	case IsProbe(server):
		return OwnerIPVS, "kube-proxy's probe for IPVS support"
	case ports == nil:
		return OwnerUnknown, "kube-proxy's sets could not be read"
	case ports.HasService(server.Protocol, server.Address):
		return masquerading(server, "address, protocol and port stand in kube-proxy's sets")
	case addresses == nil:
		return OwnerUnknown, "in none of kube-proxy's sets, and the node's addresses could not be read"
	case addresses.OnNode(server.Address.Addr()) && hasNodePort(server, ports):
		return masquerading(server, "address of the node with a node port of kube-proxy's sets")
	case addresses.OnNode(server.Address.Addr()) && server.OnlyMasquerading && ports.Unfilled(FamilyOf(server.Address.Addr())):
		return OwnerUnknown, "address of the node, and kube-proxy's sets are there without any Service or node port in them"
	case addresses.OnIPVSLink(server.Address.Addr()):
		return OwnerUnknown, "address on " + IPVSLink + ", but in none of kube-proxy's sets"
	default:
		return Foreign(unidentified), "neither in kube-proxy's sets nor on " + IPVSLink
	}
}

// masquerading keeps a virtual server from kube-proxy whose real servers are not as kube-proxy makes them.
func masquerading(server VirtualServer, reason string) (Owner, string) {
	if !server.OnlyMasquerading {
		return OwnerUnknown, reason + ", but a real server does not masquerade"
	}
	return OwnerIPVS, reason
}

func isIn(address netip.Addr, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}

func hasNodePort(server VirtualServer, ports ServicePorts) bool {
	return ports.HasNodePort(server.Protocol, server.Address.Port(), FamilyOf(server.Address.Addr()))
}

// FamilyOf returns the family of an address, and FamilyAny for the zero address.
func FamilyOf(address netip.Addr) Family {
	switch {
	case !address.IsValid():
		return FamilyAny
	case address.Is4(), address.Is4In6():
		return IPv4
	default:
		return IPv6
	}
}

// IsProbe reports whether a virtual server is the one that kube-proxy makes at its start to find out whether IPVS works. It
// is left where kube-proxy is killed meanwhile (pkg/proxy/ipvs/supported.go).
func IsProbe(server VirtualServer) bool {
	return server.Protocol == "TCP" && server.RealServers == 0 &&
		server.Address == netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 0}), 20000)
}
