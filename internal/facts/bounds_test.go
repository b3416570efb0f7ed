package facts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Each bound is met exactly and then passed by one: the first is fine, the second is refused.
func TestBounds(t *testing.T) {
	const (
		proxy    = v1.SectionKind_SECTION_KIND_KUBE_PROXY
		ipvsKind = v1.SectionKind_SECTION_KIND_IPVS
		linkKind = v1.SectionKind_SECTION_KIND_IPVS_LINK
		setsKind = v1.SectionKind_SECTION_KIND_IPSETS
		tables   = v1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6
		nft      = v1.SectionKind_SECTION_KIND_NFTABLES
		host     = v1.SectionKind_SECTION_KIND_HOST
	)
	hostFacts := func(content *v1.HostFacts) *v1.SectionStable {
		return &v1.SectionStable{State: present, Content: &v1.SectionStable_Host{Host: content}}
	}
	link := func(content *v1.IpvsLinkFacts) *v1.SectionStable {
		return &v1.SectionStable{State: present, Content: &v1.SectionStable_IpvsLink{IpvsLink: content}}
	}
	tests := []struct {
		name string
		kind v1.SectionKind
		most uint64
		make func(n uint64) *v1.SectionStable
	}{
		{"processes", proxy, 20, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Processes: repeat(&v1.KubeProxyProcess{Pid: 1}, int(n))})
		}},
		{"arguments", proxy, 32, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Processes: []*v1.KubeProxyProcess{{Args: repeat("-v", int(n))}}})
		}},
		{"bytes of an argument", proxy, 256, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Processes: []*v1.KubeProxyProcess{{Args: []string{strings.Repeat("a", int(n))}}}})
		}},
		{"endpoints", proxy, 64, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Endpoints: repeat(&v1.KubeProxyEndpoint{Status: 200}, int(n))})
		}},
		{"families", proxy, 8, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Families: repeat(v1.AddressFamily_ADDRESS_FAMILY_IPV4, int(n))})
		}},
		{"bytes of any text", proxy, 1024, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{RunningModeSource: strings.Repeat("s", int(n))})
		}},
		{"virtual servers", ipvsKind, 1 << 24, func(n uint64) *v1.SectionStable { return ipvs(&v1.IpvsFacts{VirtualServers: n}) }},
		{"real servers", ipvsKind, 1 << 28, func(n uint64) *v1.SectionStable { return ipvs(&v1.IpvsFacts{RealServers: n}) }},
		{"drained real servers", ipvsKind, 1 << 28, func(n uint64) *v1.SectionStable {
			return ipvs(&v1.IpvsFacts{RealServersWeightZero: n})
		}},
		{"schedulers", ipvsKind, 64, func(n uint64) *v1.SectionStable {
			return ipvs(&v1.IpvsFacts{Schedulers: repeat(&v1.SchedulerCount{Scheduler: "rr"}, int(n))})
		}},
		{"owners", ipvsKind, 128, func(n uint64) *v1.SectionStable {
			return ipvs(&v1.IpvsFacts{Owners: repeat(&v1.OwnerCount{Owner: "x"}, int(n))})
		}},
		{"servers of one owner", ipvsKind, 20, func(n uint64) *v1.SectionStable {
			return ipvs(&v1.IpvsFacts{VirtualServers: 100, Samples: servers("kube-proxy/ipvs", int(n))})
		}},
		{"IPv4 addresses", linkKind, 1 << 24, func(n uint64) *v1.SectionStable { return link(&v1.IpvsLinkFacts{Ipv4Addresses: n}) }},
		{"IPv6 addresses", linkKind, 1 << 24, func(n uint64) *v1.SectionStable { return link(&v1.IpvsLinkFacts{Ipv6Addresses: n}) }},
		{"link samples", linkKind, 20, func(n uint64) *v1.SectionStable { return link(&v1.IpvsLinkFacts{Samples: repeat("::1", int(n))}) }},
		{"link list", linkKind, 5, func(n uint64) *v1.SectionStable {
			return link(&v1.IpvsLinkFacts{Ipv4Addresses: 2, Ipv6Addresses: 3, List: list(2, n, 32)})
		}},
		{"sets", setsKind, 65535, func(n uint64) *v1.SectionStable { return ipsets(&v1.IpsetsFacts{Sets: n}) }},
		{"entries", setsKind, 1 << 32, func(n uint64) *v1.SectionStable { return ipsets(&v1.IpsetsFacts{Entries: n}) }},
		{"entries of one set", setsKind, 1 << 32, func(n uint64) *v1.SectionStable {
			return ipsets(&v1.IpsetsFacts{Samples: []*v1.Ipset{{Name: "x", Entries: n}}})
		}},
		{"sets of kube-proxy's", setsKind, 34, func(n uint64) *v1.SectionStable {
			return ipsets(&v1.IpsetsFacts{Samples: sets("kube-proxy/ipvs", int(n))})
		}},
		{"sets of another's", setsKind, 20, func(n uint64) *v1.SectionStable { return ipsets(&v1.IpsetsFacts{Samples: sets("foreign:x", int(n))}) }},
		{"iptables tables", tables, 16, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{Tables: repeat(&v1.IptablesTable{Name: "nat"}, int(n))})
		}},
		{"chains of a table", tables, 1 << 26, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{Tables: []*v1.IptablesTable{{Chains: n}}})
		}},
		{"rules of a table", tables, 1 << 28, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{Tables: []*v1.IptablesTable{{Rules: n}}})
		}},
		{"chains of an owner", tables, 1 << 26, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{Owners: []*v1.ChainCount{{Chains: n}}})
		}},
		{"jumps of an owner", tables, 1 << 28, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{Owners: []*v1.ChainCount{{Jumps: n}}})
		}},
		{"chain samples", tables, 20, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{Owners: []*v1.ChainCount{{Samples: repeat("KUBE-SERVICES", int(n))}}})
		}},
		{"foreign references", tables, 20, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{ForeignReferences: makeReferences(int(n))})
		}},
		{"foreign reference count", tables, 1 << 28, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{ForeignReferenceCount: n})
		}},
		{"nftables tables", nft, 1 << 16, func(n uint64) *v1.SectionStable { return nftables(&v1.NftablesFacts{Tables: n}) }},
		{"nftables samples", nft, 20, func(n uint64) *v1.SectionStable {
			return nftables(&v1.NftablesFacts{Samples: repeat(&v1.NftTable{Owner: "unknown"}, int(n))})
		}},
		{"sets of a table", nft, 1 << 26, func(n uint64) *v1.SectionStable {
			return nftables(&v1.NftablesFacts{Samples: []*v1.NftTable{{Sets: n}}})
		}},
		{"sysctls", v1.SectionKind_SECTION_KIND_SYSCTLS, 128, func(n uint64) *v1.SectionStable {
			return &v1.SectionStable{State: present, Content: &v1.SectionStable_Sysctls{Sysctls: &v1.SysctlsFacts{Values: repeat(&v1.Sysctl{Path: "x"}, int(n))}}}
		}},
		{"node addresses", v1.SectionKind_SECTION_KIND_ADDRESSES, 64, func(n uint64) *v1.SectionStable {
			return &v1.SectionStable{State: present, Content: &v1.SectionStable_Addresses{Addresses: &v1.AddressesFacts{Count: 100, Samples: makeAddresses(int(n))}}}
		}},
		{"mode changes", v1.SectionKind_SECTION_KIND_HISTORY, 20, func(n uint64) *v1.SectionStable {
			return &v1.SectionStable{State: present, Content: &v1.SectionStable_History{History: &v1.HistoryFacts{ModeChanges: repeat(&v1.ModeChange{From: 3}, int(n))}}}
		}},
		{"excluded CIDRs", proxy, 64, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Settings: &v1.KubeProxySettings{IpvsExcludeCidrs: repeat("10.0.0.0/8", int(n))}})
		}},
		{"files of kube-proxy", proxy, 20, func(n uint64) *v1.SectionStable {
			return kubeProxy(&v1.KubeProxyFacts{Files: repeat(&v1.KubeProxyFile{Path: "/etc/x"}, int(n))})
		}},
		{"wildcard listeners", linkKind, 64, func(n uint64) *v1.SectionStable {
			return link(&v1.IpvsLinkFacts{WildcardListeners: repeat(&v1.HostSocket{Protocol: "tcp"}, int(n))})
		}},
		{"holders of a set", setsKind, 20, func(n uint64) *v1.SectionStable {
			return ipsets(&v1.IpsetsFacts{Sets: 1, Samples: []*v1.Ipset{{Holders: repeat(&v1.SetHolder{Rules: 1}, int(n))}}})
		}},
		{"foreign set matches", tables, 20, func(n uint64) *v1.SectionStable {
			return iptables(&v1.IptablesFacts{ForeignSetMatches: repeat(&v1.ForeignReference{Set: "s"}, int(n))})
		}},
		{"drop chains", nft, 20, func(n uint64) *v1.SectionStable {
			return nftables(&v1.NftablesFacts{DropChains: repeat("inet f i", int(n))})
		}},
		{"foreign marks", nft, 20, func(n uint64) *v1.SectionStable {
			return nftables(&v1.NftablesFacts{ForeignMarks: repeat(&v1.NftMark{Family: "inet"}, int(n))})
		}},
		{"base chains", nft, 20, func(n uint64) *v1.SectionStable {
			return nftables(&v1.NftablesFacts{Samples: []*v1.NftTable{{BaseChains: repeat(&v1.NftBaseChain{Name: "i"}, int(n))}}})
		}},
		{"kernel features", host, 128, func(n uint64) *v1.SectionStable {
			return hostFacts(&v1.HostFacts{Features: repeat(&v1.KernelFeature{Name: "nft_fib"}, int(n))})
		}},
		{"names in a file", host, 20, func(n uint64) *v1.SectionStable {
			return hostFacts(&v1.HostFacts{Files: []*v1.HostFile{{Names: repeat("KUBE-IPVS-IPS", int(n))}}})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := facts.Check(tt.kind, tt.make(tt.most)); err != nil {
				t.Errorf("%d: %v", tt.most, err)
			}
			if err := facts.Check(tt.kind, tt.make(tt.most+1)); err == nil {
				t.Errorf("%d was taken", tt.most+1)
			}
		})
	}
}

// The largest section that its list bounds allow, with short texts, still travels.
func TestFullSectionFits(t *testing.T) {
	var samples []*v1.Ipset
	for owner := range 40 {
		for _, set := range sets(fmt.Sprint("foreign:", owner), 20) {
			samples = append(samples, &v1.Ipset{Name: set.GetName() + strings.Repeat("x", 24), Type: "hash:ip,port,net", Owner: set.GetOwner(), Entries: 1 << 20, MemoryBytes: 1 << 30})
		}
	}
	full := ipsets(&v1.IpsetsFacts{Sets: 65535, Samples: slices.Concat(sets("kube-proxy/ipvs", 34), samples)})
	encoded, _, err := facts.Encode(full)
	if err != nil {
		t.Fatal(err)
	}
	got, err := facts.Decode(v1.SectionKind_SECTION_KIND_IPSETS, encoded)
	if err != nil || !proto.Equal(got, full) {
		t.Errorf("%d bytes: %v", len(encoded), err)
	}
}
