package trace

import (
	"os"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// On the host itself inspect only looks, so no namespace is needed: every section is said, none is unreadable.
func TestInspectOnThisHost(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv(nstest.RequireKernel) == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: part of a node can be read by root alone")
	}
	m := here{}
	before := look(t, m, fileTraces()[:5])
	node := inspect(t, m)
	text := output(t, m, m.agent(), "inspect")
	same(t, "inspect", before, look(t, m, fileTraces()[:5]))
	says(t, node, states{kernel: present, history: absent})
	for _, name := range sectionNames() {
		if strings.Count(text, "\n  "+name+": ") != 1 {
			t.Errorf("inspect does not say %q once:\n%s", name, text)
		}
	}
	for _, bad := range []string{"unreadable", "inconsistent"} {
		if strings.Contains(text, bad) {
			t.Errorf("inspect says %s:\n%s", bad, text)
		}
	}
}

// sectionNames are the sections as people read them.
func sectionNames() []string {
	return []string{
		"kernel", "kube-proxy", "ipvs", "kube-ipvs0", "ipsets", "iptables-nft IPv4", "iptables-nft IPv6",
		"iptables-legacy IPv4", "iptables-legacy IPv6", "nftables", "sysctls", "addresses", "history",
	}
}

// In a namespace of the host, empty and then full, looking changes nothing either.
func TestLookingLeavesNoTraceHere(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore", "ipset", "nft", "ip")
	nstest.NeedKernel(t, "nf_tables", "ip_set", "ip_tables", "ip6_tables", "nft_compat")
	m := here{}
	leavesNoTrace(t, m, nil)
	for kind, state := range map[offrampv1.SectionKind]offrampv1.SectionState{
		ipsets: empty, nftables: empty, nftIPv4: empty, nftIPv6: empty, legacyIPv4: empty, legacyIPv6: empty, link: absent,
	} {
		if got := section(t, inspect(t, m), kind).GetStable().GetState(); got != state {
			t.Errorf("%v is %v in an empty namespace, want %v", kind, got, state)
		}
	}
	buildZoo(t, m)
	before := generation(t, m)
	leavesNoTrace(t, m, toolTraces(false))
	if now := generation(t, m); now != before {
		t.Errorf("the generation of nf_tables was %d and is %d", before, now)
	}
}
