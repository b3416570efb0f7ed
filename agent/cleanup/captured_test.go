package cleanup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// captured makes a reading of a capture's files, by readers of the test's own. mode is what a person asserts; 0 is what
// kube-proxy said.
func captured(t *testing.T, capture string, mode offrampv1.ProxyMode) *cleanup.Reading {
	t.Helper()
	inv := &inventory.Node{BootID: "7d8e9f00-0000-4000-8000-000000000001"}
	capturedNetwork(t, inv, fileOf(t, capture, "ip-addr.txt"))
	sets := capturedSets(t, inv, capture)
	inv.Servers = capturedServers(t, inv, sets, fileOf(t, capture, "ipvsadm-save.txt"))
	inv.Rulesets = []inventory.Ruleset{
		savedRuleset(t, fileOf(t, capture, "iptables-nft-save.txt"), offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4),
		savedRuleset(t, fileOf(t, capture, "ip6tables-nft-save.txt"), offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6),
	}
	for line := range strings.Lines(fileOf(t, capture, "nft-ruleset.txt")) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "table" && fields[2] == "kube-proxy" {
			inv.Tables = append(inv.Tables, inventory.Table{Table: kubeproxy.Table{Family: fields[1], Name: fields[2]}})
		}
	}
	for line := range strings.Lines(fileOf(t, capture, "nfacct.txt")) {
		_, name, _ := strings.Cut(strings.TrimRight(line, ";\n"), "} = ")
		inv.Accounting = append(inv.Accounting, name)
	}
	return &cleanup.Reading{Facts: capturedFacts(t, capture, inv, mode), Inventory: inv}
}

func fileOf(t *testing.T, capture, file string) string {
	t.Helper()
	content, err := captures.Read(capture, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

// capturedNetwork reads "ip -d addr". The kernel's local routes to the addresses of kube-ipvs0 are added: ip-route-local.txt
// shows only those of IPv4.
func capturedNetwork(t *testing.T, inv *inventory.Node, text string) {
	t.Helper()
	var link string
	up := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, " "):
			link, up = strings.TrimSuffix(fields[1], ":"), strings.Contains(fields[2], ",UP")
			if link == kubeproxy.IPVSLink {
				inv.Link = &inventory.Link{Name: link}
			}
		case fields[0] == "dummy" && link == kubeproxy.IPVSLink:
			inv.Link.Kind = "dummy"
		case fields[0] == "inet", fields[0] == "inet6":
			capturedAddress(inv, link, up, netip.MustParsePrefix(fields[1]))
		}
	}
}

func capturedAddress(inv *inventory.Node, link string, up bool, prefix netip.Prefix) {
	if link == kubeproxy.IPVSLink {
		inv.Link.Addresses = append(inv.Link.Addresses, prefix)
		inv.Link.Routes = append(inv.Link.Routes, inventory.LocalRoute{Address: prefix.Addr(), Link: link, Protocol: 2})
		return
	}
	inv.Addresses = append(inv.Addresses, inventory.Address{
		Link: link, Prefix: prefix, Up: up, Loopback: link == "lo", Primary: prefix.Addr().String() == "fec0::15",
	})
}

// capturedMembers is what ipset-save.txt says of members: a kubeproxy.ServicePorts.
type capturedMembers map[string][]string

func capturedSets(t *testing.T, inv *inventory.Node, capture string) capturedMembers {
	t.Helper()
	members := capturedMembers{}
	for line := range strings.Lines(fileOf(t, capture, "ipset-save.txt")) {
		fields := strings.Fields(line)
		if fields[0] == "add" {
			members[fields[1]] = append(members[fields[1]], fields[2])
			continue
		}
		set := inventory.Set{Set: kubeproxy.Set{Name: fields[1], Type: fields[2]}}
		switch {
		case strings.Contains(line, " family inet6 "):
			set.Family = kubeproxy.IPv6
		case strings.Contains(line, " family inet "):
			set.Family = kubeproxy.IPv4
		}
		inv.Sets = append(inv.Sets, set)
	}
	for i := range inv.Sets {
		set := &inv.Sets[i]
		set.Entries = uint32(len(members[set.Name]))
		_, after, _ := strings.Cut(fileOf(t, capture, "ipset-list-terse.txt"), "Name: "+set.Name+"\n")
		_, after, _ = strings.Cut(after, "References: ")
		count, _, _ := strings.Cut(after, "\n")
		references, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("references of %s: %v", set.Name, err)
		}
		set.References = uint32(references)
	}
	slices.SortFunc(inv.Sets, func(a, b inventory.Set) int { return strings.Compare(a.Name, b.Name) })
	return members
}

func (m capturedMembers) HasService(protocol string, at netip.AddrPort) bool {
	want := fmt.Sprintf("%s,%s:%d", at.Addr(), strings.ToLower(protocol), at.Port())
	return slices.ContainsFunc(kubeproxy.ServiceSets(), func(set kubeproxy.Set) bool { return slices.Contains(m[set.Name], want) })
}

func (m capturedMembers) HasNodePort(protocol string, port uint16, family kubeproxy.Family) bool {
	want := strconv.Itoa(int(port))
	return slices.ContainsFunc(kubeproxy.NodePortSets(), func(set kubeproxy.NodePortSet) bool {
		return set.Protocol == protocol && set.Serves == family && slices.ContainsFunc(m[set.Name], func(member string) bool {
			return member == want || strings.HasSuffix(member, ":"+want)
		})
	})
}

func (m capturedMembers) Unfilled(kubeproxy.Family) bool { return false }

type capturedAddresses struct{ inv *inventory.Node }

func (c capturedAddresses) OnIPVSLink(address netip.Addr) bool {
	return c.inv.Link != nil && slices.ContainsFunc(c.inv.Link.Addresses, func(p netip.Prefix) bool { return p.Addr() == address })
}

func (c capturedAddresses) OnNode(address netip.Addr) bool {
	return slices.ContainsFunc(c.inv.Addresses, func(a inventory.Address) bool { return a.Prefix.Addr() == address })
}

// capturedServers reads "ipvsadm -Sn".
func capturedServers(t *testing.T, inv *inventory.Node, members capturedMembers, text string) []inventory.VirtualServer {
	t.Helper()
	protocols := map[string]string{"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}
	var servers []inventory.VirtualServer
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if fields[0] == "-A" {
			servers = append(servers, inventory.VirtualServer{
				Protocol: protocols[fields[1]], Address: netip.MustParseAddrPort(fields[2]), Scheduler: fields[4],
			})
			continue
		}
		last := &servers[len(servers)-1]
		last.RealServers = append(last.RealServers, inventory.RealServer{Forward: "Masq", Weight: 1})
	}
	for i := range servers {
		server := &servers[i]
		server.Owner, server.Reason = kubeproxy.VirtualServerOwner(kubeproxy.VirtualServer{
			Protocol: server.Protocol, Address: server.Address, OnlyMasquerading: true, RealServers: len(server.RealServers),
		}, members, capturedAddresses{inv}, nil)
	}
	return servers
}
