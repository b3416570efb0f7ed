package cleanup

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// seenNAT is an edit that deletes the two chains of enterNFT, and what it saw.
func seenNAT(t *testing.T) (*nftEdit, *nftSeen) {
	t.Helper()
	const section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4
	edit := &nftEdit{family: unix.NFPROTO_IPV4}
	for _, chain := range []string{"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"} {
		edit.operations = append(edit.operations, &offrampv1.Operation{Change: &offrampv1.Operation_DeleteChain{
			DeleteChain: &offrampv1.DeleteChain{Section: section, Table: "nat", Chain: chain},
		}})
	}
	seen, err := edit.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	jump := inventory.Rule{Position: 1, Handle: seen.tables["nat"]["KUBE-LOAD-BALANCER"][0], To: "KUBE-NODE-PORT"}
	edit.inventory = &inventory.Node{Rulesets: []inventory.Ruleset{{Section: section, Family: kubeproxy.IPv4, Tables: []inventory.RuleTable{{
		Name: "nat", Chains: []inventory.Chain{{Name: "KUBE-NODE-PORT"}, {Name: "KUBE-LOAD-BALANCER", Rules: []inventory.Rule{jump}}},
	}}}}}
	return edit, seen
}

// What was seen goes although the ruleset has moved since, if nothing of it has changed.
func TestPinnedGoesThoughTheGenerationMoved(t *testing.T) {
	if !enterNFT(t) {
		return
	}
	edit, seen := seenNAT(t)
	tool(t, "nft", "add", "table", "ip", "other")
	tool(t, "iptables-nft", "-t", "nat", "-A", "MINE", "-j", "RETURN")
	if _, err := edit.delete(t.Context(), seen, seen.generation); !errors.Is(err, errChanged) {
		t.Fatalf("the ruleset has moved, and the error is %v", err)
	}
	outcomes, err := edit.pinned(t.Context(), seen)
	if diff := cmp.Diff([]offrampv1.OperationOutcome{done, done}, outcomes); err != nil || diff != "" {
		t.Errorf("error %v, outcomes:\n%s", err, diff)
	}
	if left := natTable(t); strings.Contains(left, "KUBE-") || !strings.Contains(left, "-A MINE -j RETURN") {
		t.Errorf("what is left is\n%s", left)
	}
}

// Where anything of it has changed, the kernel refuses all of it.
func TestPinnedChangesNothingElse(t *testing.T) {
	for name, change := range map[string][]string{
		"a rule was added":                 {"iptables-nft", "-t", "nat", "-A", "KUBE-NODE-PORT", "-s", "192.0.2.7", "-j", "RETURN"},
		"a rule was added behind one":      {"iptables-nft", "-t", "nat", "-A", "KUBE-LOAD-BALANCER", "-s", "192.0.2.7", "-j", "RETURN"},
		"somebody jumps there":             {"iptables-nft", "-t", "nat", "-A", "MINE", "-j", "KUBE-NODE-PORT"},
		"a rule was deleted":               {"iptables-nft", "-t", "nat", "-F", "KUBE-LOAD-BALANCER"},
		"a rule stands in another's stead": {"nft", "flush chain ip nat KUBE-LOAD-BALANCER; add rule ip nat KUBE-LOAD-BALANCER ip saddr 192.0.2.7 accept"},
		"it is another table with the name": {"nft", "delete table ip nat; add table ip nat; add chain ip nat KUBE-NODE-PORT; add chain ip nat KUBE-LOAD-BALANCER; " +
			"add chain ip nat MINE; add rule ip nat KUBE-LOAD-BALANCER accept"}, // its rule has the handle of the one that was seen
	} {
		t.Run(name, func(t *testing.T) {
			if !enterNFT(t) {
				return
			}
			edit, seen := seenNAT(t)
			tool(t, change...)
			before := tool(t, "nft", "list", "table", "ip", "nat")
			if outcomes, err := edit.pinned(t.Context(), seen); !errors.Is(err, errChanged) {
				t.Errorf("outcomes %v, error %v, want %v", outcomes, err, errChanged)
			}
			if diff := cmp.Diff(before, tool(t, "nft", "list", "table", "ip", "nat")); diff != "" {
				t.Errorf("it changed something:\n%s", diff)
			}
		})
	}
}
