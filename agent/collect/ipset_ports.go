package collect

import (
	"context"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// servicePorts is what stands in kube-proxy's ipsets: a kubeproxy.ServicePorts.
type servicePorts struct {
	services map[servicePort]struct{}
	nodes    map[nodePort]struct{}
	// there and filled: the families with sets of Services or node ports, and those with a member in one.
	there, filled map[kubeproxy.Family]bool
}

type servicePort struct {
	protocol string
	address  netip.AddrPort
}

type nodePort struct {
	protocol string
	port     uint16
	family   kubeproxy.Family
}

// HasService reports whether address, protocol and port stand together in a set of Services.
func (p *servicePorts) HasService(protocol string, address netip.AddrPort) bool {
	_, found := p.services[servicePort{protocol, address}]
	return found
}

// HasNodePort reports whether protocol and port stand in a set of node ports of the family.
func (p *servicePorts) HasNodePort(protocol string, port uint16, family kubeproxy.Family) bool {
	_, found := p.nodes[nodePort{protocol, port, family}]
	return found
}

// Unfilled reports whether the family has sets of kube-proxy's, and nothing in them.
func (p *servicePorts) Unfilled(family kubeproxy.Family) bool {
	return p.there[family] && !p.filled[family]
}

func newServicePorts() *servicePorts {
	return &servicePorts{
		services: map[servicePort]struct{}{}, nodes: map[nodePort]struct{}{},
		there: map[kubeproxy.Family]bool{}, filled: map[kubeproxy.Family]bool{},
	}
}

// see notes a set that serves a family, and says whether it has members to read.
func (p *servicePorts) see(family kubeproxy.Family, members uint32, found bool) bool {
	p.there[family] = p.there[family] || found
	p.filled[family] = p.filled[family] || members > 0
	return members > 0
}

// readServicePorts reads the members of kube-proxy's sets. A kernel without ipsets has no members: that is an answer.
func readServicePorts(ctx context.Context, mods *modules) (*servicePorts, error) {
	s, err := openIPSet(mods)
	if errors.Is(err, errNoIPSet) {
		return newServicePorts(), nil
	}
	if err != nil {
		return nil, err
	}
	defer s.close()
	ports, _, err := repeat(ctx, func(ctx context.Context) (*servicePorts, error) {
		return dumpServicePorts(ctx, s)
	})
	if mods.deniesIPSet(err) {
		return newServicePorts(), nil
	}
	return ports, err
}

// dumpServicePorts asks only for sets that are there, have members, and have kube-proxy's name, type and family.
func dumpServicePorts(ctx context.Context, s *socket) (*servicePorts, error) {
	headers, err := dumpIPSetHeaders(ctx, s)
	if err != nil {
		return nil, err
	}
	members := map[kubeproxy.Set]uint32{}
	for _, header := range headers {
		members[header.set()] = header.entries
	}
	ports := newServicePorts()
	for _, set := range kubeproxy.ServiceSets() {
		if entries, found := members[set]; !ports.see(set.Family, entries, found) {
			continue
		}
		if err := dumpIPSetMembers(ctx, s, set, ports.addService); err != nil {
			return nil, err
		}
	}
	for _, set := range kubeproxy.NodePortSets() {
		if entries, found := members[set.Set]; !ports.see(set.Serves, entries, found) {
			continue
		}
		add := func(member ipsetMember) { ports.nodes[nodePort{set.Protocol, member.port, set.Serves}] = struct{}{} }
		if err := dumpIPSetMembers(ctx, s, set.Set, add); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

func (p *servicePorts) addService(member ipsetMember) {
	protocol := protocolName(member.protocol)
	p.services[servicePort{protocol, netip.AddrPortFrom(member.address, member.port)}] = struct{}{}
}

// protocolName is how /proc/net/ip_vs calls a protocol; empty for one that kube-proxy never uses.
func protocolName(number uint8) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "TCP"
	case unix.IPPROTO_UDP:
		return "UDP"
	case unix.IPPROTO_SCTP:
		return "SCTP"
	default:
		return ""
	}
}
