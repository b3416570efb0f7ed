package trace

import (
	"slices"
	"strings"
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	absent  = offrampv1.SectionState_SECTION_STATE_ABSENT
	empty   = offrampv1.SectionState_SECTION_STATE_EMPTY
	present = offrampv1.SectionState_SECTION_STATE_PRESENT
)

// Short names of the kinds.
const (
	kernel     = offrampv1.SectionKind_SECTION_KIND_KERNEL
	kubeProxy  = offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY
	ipvs       = offrampv1.SectionKind_SECTION_KIND_IPVS
	link       = offrampv1.SectionKind_SECTION_KIND_IPVS_LINK
	ipsets     = offrampv1.SectionKind_SECTION_KIND_IPSETS
	nftIPv4    = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4
	nftIPv6    = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6
	legacyIPv4 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
	legacyIPv6 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
	nftables   = offrampv1.SectionKind_SECTION_KIND_NFTABLES
	sysctls    = offrampv1.SectionKind_SECTION_KIND_SYSCTLS
	addresses  = offrampv1.SectionKind_SECTION_KIND_ADDRESSES
	history    = offrampv1.SectionKind_SECTION_KIND_HISTORY
)

// states is how each section should be read.
type states map[offrampv1.SectionKind]offrampv1.SectionState

// freshStates are those of a guest in which nothing was ever asked for. Written by hand.
func freshStates() states {
	return states{
		kernel: present, kubeProxy: absent, ipvs: absent, link: absent, ipsets: absent, nftIPv4: absent, nftIPv6: absent,
		legacyIPv4: absent, legacyIPv6: absent, nftables: absent, sysctls: present, addresses: present, history: absent,
	}
}

// with returns the states with some of them changed to one.
func (s states) with(state offrampv1.SectionState, kinds ...offrampv1.SectionKind) states {
	changed := states{}
	for kind, was := range s {
		changed[kind] = was
	}
	for _, kind := range kinds {
		changed[kind] = state
	}
	return changed
}

// says holds that inspect says something of every section that there is, that it could read them all, and that those
// named are as they should be.
func says(t *testing.T, node *offrampv1.GetNodeResponse, want states) {
	t.Helper()
	if got, all := len(node.GetFacts().GetSections()), len(offrampv1.SectionKind_name)-1; got != all {
		t.Errorf("inspect says something of %d sections, there are %d", got, all)
	}
	for _, one := range node.GetFacts().GetSections() {
		stable := one.GetStable()
		is := stable.GetState()
		if state, named := want[one.GetKind()]; named && is != state {
			t.Errorf("%v is %v (%s), want %v", one.GetKind(), is, stable.GetError(), state)
		}
		if is != absent && is != empty && is != present {
			t.Errorf("%v is %v: %s", one.GetKind(), is, stable.GetError())
		}
	}
}

// nativeStates concludes from the native tools how a guest's sections should be read. Tools are only asked for what is
// loaded, since asking loads.
func nativeStates(t *testing.T, m machine) states {
	t.Helper()
	s := freshStates()
	loaded := strings.Fields(output(t, m, "ls", "/sys/module"))
	has := func(module string) bool { return slices.Contains(loaded, module) }
	if has("ip_vs") {
		s[ipvs] = fullIf(count(output(t, m, "ipvsadm", "-Sn"), "-A ") > 0)
	}
	if has("ip_set") {
		s[ipsets] = fullIf(output(t, m, "ipset", "list", "-n") != "")
	}
	if slices.Contains(strings.Fields(output(t, m, "ls", "/sys/class/net")), "kube-ipvs0") {
		s[link] = present
	}
	if has("nf_tables") {
		native, ip, ip6 := splitTables(t, m)
		s[nftables], s[nftIPv4], s[nftIPv6] = fullIf(len(native) > 0), fullIf(ip > 0), fullIf(ip6 > 0)
	}
	for kind, family := range map[offrampv1.SectionKind]string{legacyIPv4: "ip", legacyIPv6: "ip6"} {
		if tables := m.run(t, "", "cat", "/proc/net/"+family+"_tables_names"); tables.ExitCode == 0 {
			s[kind] = fullIf(tables.Stdout != "")
		}
	}
	return s
}

func fullIf(full bool) offrampv1.SectionState {
	if full {
		return present
	}
	return empty
}

// count counts the lines that begin with something.
func count(text, prefix string) uint64 {
	var n uint64
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}
