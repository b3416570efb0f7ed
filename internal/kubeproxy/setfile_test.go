package kubeproxy_test

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

// savedSets is what an ipset-save file holds.
type savedSets struct {
	sets    []kubeproxy.Set
	members map[string][]string
}

func parseSets(t *testing.T, text string) savedSets {
	t.Helper()
	out := savedSets{members: map[string][]string{}}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "create":
			out.sets = append(out.sets, kubeproxy.Set{Name: fields[1], Type: fields[2], Family: setFamily(line)})
		case "add":
			out.members[fields[1]] = append(out.members[fields[1]], fields[2])
		default:
			t.Fatalf("unexpected line of ipset-save: %q", line)
		}
	}
	return out
}

func setFamily(line string) kubeproxy.Family {
	switch {
	case strings.Contains(line, " family inet6 "):
		return kubeproxy.IPv6
	case strings.Contains(line, " family inet "):
		return kubeproxy.IPv4
	default:
		return kubeproxy.FamilyAny
	}
}

// HasService looks for "ADDRESS,PROTOCOL:PORT" in the sets that the product names for it.
func (s savedSets) HasService(protocol string, address netip.AddrPort) bool {
	want := address.Addr().String() + "," + strings.ToLower(protocol) + ":" + strconv.Itoa(int(address.Port()))
	for _, set := range kubeproxy.ServiceSets() {
		for _, member := range s.members[set.Name] {
			if member == want {
				return true
			}
		}
	}
	return false
}

// HasNodePort looks for the port in the node-port sets.
func (s savedSets) HasNodePort(protocol string, port uint16, family kubeproxy.Family) bool {
	want := strconv.Itoa(int(port))
	for _, set := range kubeproxy.NodePortSets() {
		if set.Protocol != protocol || set.Serves != family {
			continue
		}
		for _, member := range s.members[set.Name] {
			if member == want || strings.HasSuffix(member, ","+strings.ToLower(protocol)+":"+want) {
				return true
			}
		}
	}
	return false
}

// Unfilled looks for the sets of the family, and for members of any of them.
func (s savedSets) Unfilled(family kubeproxy.Family) bool {
	there := false
	look := func(name string) bool {
		there = there || slices.ContainsFunc(s.sets, func(set kubeproxy.Set) bool { return set.Name == name })
		return len(s.members[name]) > 0
	}
	for _, set := range kubeproxy.ServiceSets() {
		if set.Family == family && look(set.Name) {
			return false
		}
	}
	for _, set := range kubeproxy.NodePortSets() {
		if set.Serves == family && look(set.Name) {
			return false
		}
	}
	return there
}

// savedAddresses is what ip-addr.txt says of links and addresses.
type savedAddresses struct {
	links      []kubeproxy.Link
	ipvs, node map[netip.Addr]bool
}

func parseAddresses(t *testing.T, text string) savedAddresses {
	t.Helper()
	out := savedAddresses{ipvs: map[netip.Addr]bool{}, node: map[netip.Addr]bool{}}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, " "):
			out.links = append(out.links, kubeproxy.Link{Name: strings.TrimSuffix(fields[1], ":")})
		case fields[0] == "dummy":
			out.links[len(out.links)-1].Type = "dummy"
		case fields[0] == "inet", fields[0] == "inet6":
			out.add(netip.MustParsePrefix(fields[1]).Addr())
		}
	}
	return out
}

func (s savedAddresses) add(address netip.Addr) {
	if s.links[len(s.links)-1].Name == "kube-ipvs0" {
		s.ipvs[address] = true
		return
	}
	s.node[address] = true
}

func (s savedAddresses) OnIPVSLink(address netip.Addr) bool { return s.ipvs[address] }
func (s savedAddresses) OnNode(address netip.Addr) bool     { return s.node[address] }

// parseServers reads the output of "ipvsadm -Sn".
func parseServers(t *testing.T, text string) []kubeproxy.VirtualServer {
	t.Helper()
	protocols := map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}
	var servers []kubeproxy.VirtualServer
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "-A":
			servers = append(servers, kubeproxy.VirtualServer{
				Protocol: protocols[fields[1]], Address: netip.MustParseAddrPort(fields[2]), OnlyMasquerading: true,
			})
		case "-a":
			last := &servers[len(servers)-1]
			last.RealServers++
			last.OnlyMasquerading = last.OnlyMasquerading && strings.Contains(line, " -m ")
		default:
			t.Fatalf("unexpected line of ipvsadm: %q", line)
		}
	}
	return servers
}
