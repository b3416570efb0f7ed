package cleanup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func enterNFT(t *testing.T) bool {
	t.Helper()
	if !nstest.Enter(t) {
		return false
	}
	nstest.NeedTool(t, "iptables-nft", "iptables-nft-save", "nft")
	nstest.NeedKernel(t, "nf_tables", "nft_compat")
	for _, chain := range []string{"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "MINE"} {
		tool(t, "iptables-nft", "-t", "nat", "-N", chain)
	}
	tool(t, "iptables-nft", "-t", "nat", "-A", "KUBE-LOAD-BALANCER", "-j", "KUBE-NODE-PORT")
	return true
}

func natTable(t *testing.T) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(tool(t, "iptables-nft-save", "-t", "nat")) {
		if !strings.HasPrefix(line, "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// A ruleset that has moved since the look is left as it is, also by a transaction that would still be possible.
func TestStaleGenerationChangesNothing(t *testing.T) {
	if !enterNFT(t) {
		return
	}
	generation, err := nftGeneration()
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "nft", "add", "table", "ip", "other")
	before := natTable(t)
	stale := newNFTBatch(generation)
	stale.deleteChain(unix.NFPROTO_IPV4, "nat", "MINE")
	if err := stale.commit(t.Context()); !errors.Is(err, errChanged) {
		t.Errorf("error %v, want %v", err, errChanged)
	}
	if diff := cmp.Diff(before, natTable(t)); diff != "" {
		t.Errorf("it changed something:\n%s", diff)
	}
	fresh, err := nftGeneration()
	if err != nil {
		t.Fatal(err)
	}
	now := newNFTBatch(fresh)
	now.deleteChain(unix.NFPROTO_IPV4, "nat", "MINE")
	if err := now.commit(t.Context()); err != nil {
		t.Error(err)
	}
	if strings.Contains(natTable(t), "MINE") {
		t.Error("a transaction of the right generation was not done")
	}
}

// All or nothing, and the one that was refused is told.
func TestOneRefusedRefusesAll(t *testing.T) {
	if !enterNFT(t) {
		return
	}
	before := natTable(t)
	batch := newNFTBatch(0)
	batch.deleteChain(unix.NFPROTO_IPV4, "nat", "MINE")
	batch.deleteChain(unix.NFPROTO_IPV4, "nat", "KUBE-NODE-PORT") // KUBE-LOAD-BALANCER jumps there
	batch.deleteChain(unix.NFPROTO_IPV4, "nat", "NOBODYS")
	err := batch.commit(t.Context())
	var refused *refusedError
	if !errors.As(err, &refused) || refused.message != 1 || !errors.Is(err, unix.EBUSY) {
		t.Errorf("error %v, want that message 1 is busy", err)
	}
	if diff := cmp.Diff(before, natTable(t)); diff != "" {
		t.Errorf("it changed something:\n%s", diff)
	}
}

// Twenty thousand chains go in one transaction: no answer to each may overrun the socket.
func TestManyGoAtOnce(t *testing.T) {
	if !enterNFT(t) {
		return
	}
	const count = 10000
	made := newNFTBatch(0)
	name := func(i int) string { return fmt.Sprintf("KUBE-SVC-%016d", i) }
	for i := range count {
		made.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, unix.NFPROTO_IPV4,
			nftText(unix.NFTA_CHAIN_TABLE, "nat"), nftText(unix.NFTA_CHAIN_NAME, name(i)))
	}
	if err := made.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	generation, err := nftGeneration()
	if err != nil {
		t.Fatal(err)
	}
	batch := newNFTBatch(generation)
	for i := range count {
		batch.emptyChain(unix.NFPROTO_IPV4, "nat", name(i))
		batch.deleteChain(unix.NFPROTO_IPV4, "nat", name(i))
	}
	if err := batch.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	table, err := lookNFTTable(unix.NFPROTO_IPV4, "nat")
	if err != nil {
		t.Fatal(err)
	}
	if _, mine := table["MINE"]; !mine || len(table) > 10 {
		t.Errorf("%d chains are left", len(table))
	}
}

// A rule that somebody puts into a chain between the plan and the transaction keeps the whole transaction from being done.
func TestRuleAddedSinceThePlan(t *testing.T) {
	if !enterNFT(t) {
		return
	}
	const section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4
	table, err := lookNFTTable(unix.NFPROTO_IPV4, "nat")
	if err != nil {
		t.Fatal(err)
	}
	node := &inventory.Node{Rulesets: []inventory.Ruleset{{Section: section, Family: kubeproxy.IPv4, Tables: []inventory.RuleTable{{
		Name: "nat", Chains: []inventory.Chain{
			{Name: "KUBE-NODE-PORT"},
			{Name: "KUBE-LOAD-BALANCER", Rules: []inventory.Rule{{Position: 1, Handle: table["KUBE-LOAD-BALANCER"][0], To: "KUBE-NODE-PORT"}}},
		},
	}}}}}
	var operations []*offrampv1.Operation
	for _, chain := range []string{"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"} {
		operations = append(operations, &offrampv1.Operation{Change: &offrampv1.Operation_DeleteChain{
			DeleteChain: &offrampv1.DeleteChain{Section: section, Table: "nat", Chain: chain},
		}})
	}
	edit := &nftEdit{unix.NFPROTO_IPV4, operations, node}
	tool(t, "iptables-nft", "-t", "nat", "-A", "KUBE-NODE-PORT", "-s", "192.0.2.7", "-j", "RETURN")
	before := natTable(t)
	if _, err := edit.do(t.Context()); !errors.Is(err, errChangedChain) {
		t.Errorf("error %v, want %v", err, errChangedChain)
	}
	if diff := cmp.Diff(before, natTable(t)); diff != "" {
		t.Errorf("it changed something:\n%s", diff)
	}
	tool(t, "iptables-nft", "-t", "nat", "-F", "KUBE-NODE-PORT")
	outcomes, err := edit.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]offrampv1.OperationOutcome{done, done}, outcomes); diff != "" {
		t.Error(diff)
	}
	if again, err := edit.do(t.Context()); err != nil || again[0] != gone || again[1] != gone {
		t.Errorf("again: %v, error %v, want that both are gone", again, err)
	}
}
