package kubeproxy_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
)

// The nodes of recorded captures had kube-proxy and the chains of a kubelet, and nobody else: nothing on them may be
// anybody else's or unknown. Unlike owners.txt this does not say which mode's a thing is.
func TestEveryObjectOfRecordedCapturesIsOfKubernetes(t *testing.T) {
	for _, name := range captures.Recorded() {
		t.Run(name, func(t *testing.T) {
			seen := 0
			for _, file := range []string{"iptables-nft-save.txt", "iptables-legacy-save.txt"} {
				seen += checkOurs(t, parseSave(t, readFile(t, name, file), kubeproxy.IPv4))
			}
			for _, file := range []string{"ip6tables-nft-save.txt", "ip6tables-legacy-save.txt"} {
				seen += checkOurs(t, parseSave(t, readFile(t, name, file), kubeproxy.IPv6))
			}
			if seen == 0 {
				t.Error("no chain was read: the reader of the test is broken")
			}
			checkOurSetsAndServers(t, name)
		})
	}
}

// checkOurs returns how many chains it has seen.
func checkOurs(t *testing.T, got saved) int {
	t.Helper()
	for _, chain := range got.chains {
		if owner := kubeproxy.ChainOwner(chain); !ours(owner) {
			t.Errorf("chain %s of %s is of %s", chain.Name, chain.Table, owner)
		}
	}
	for _, jump := range got.jumps {
		if owner := kubeproxy.JumpOwner(jump.Jump); !ours(owner) {
			t.Errorf("jump %q of %s is of %s", jump.text, jump.Table, owner)
		}
	}
	return len(got.chains)
}

func ours(owner kubeproxy.Owner) bool { return owner.IsKubeProxy() || owner == kubeproxy.OwnerKubelet }

func checkOurSetsAndServers(t *testing.T, name string) {
	t.Helper()
	sets := parseSets(t, readFile(t, name, "ipset-save.txt"))
	for _, set := range sets.sets {
		if owner := kubeproxy.SetOwner(set); owner != kubeproxy.OwnerIPVS {
			t.Errorf("set %s is of %s", set.Name, owner)
		}
	}
	addresses := parseAddresses(t, readFile(t, name, "ip-addr.txt"))
	for _, link := range addresses.links {
		if owner := kubeproxy.LinkOwner(link); (owner == kubeproxy.OwnerIPVS) != (link.Name == "kube-ipvs0") {
			t.Errorf("link %s is of %s", link.Name, owner)
		}
	}
	for _, server := range parseServers(t, readFile(t, name, "ipvsadm-save.txt")) {
		if owner, reason := kubeproxy.VirtualServerOwner(server, sets, addresses, nil); owner != kubeproxy.OwnerIPVS {
			t.Errorf("virtual server %v is of %s: %s", server, owner, reason)
		}
	}
	for line := range strings.Lines(readFile(t, name, "nfacct.txt")) {
		_, object, _ := strings.Cut(strings.TrimRight(line, ";\n"), "} = ")
		if owner := kubeproxy.NfacctOwner(object); !owner.IsKubeProxy() {
			t.Errorf("accounting object %q is of %s", object, owner)
		}
	}
}
