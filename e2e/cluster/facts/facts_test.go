package facts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/facts"
)

func rows() []facts.Row {
	return []facts.Row{
		{
			Order: 10, Transition: "ipvs -> nftables", Proxy: "1.37.2", Kernel: "6.1", Backend: "iptables-nft",
			Before: cluster.State{
				VirtualServers: 85, RealServers: 137, Sets4: 17, Sets6: 17, Entries4: 86, Entries6: 84, Link: true, Addresses: 55,
				NFT: cluster.Rules{Chains4: 11, Rules4: 46, Chains6: 11, Rules6: 45},
			},
			After: cluster.State{
				Sets6: 17, Entries6: 84, Tables: []string{"ip kube-proxy", "ip6 kube-proxy"},
				Sysctls: map[string]string{"vs/conntrack": "1", "conf/all/arp_ignore": "0", "ip_forward": "1"},
			},
			Errors: []string{"4 x cleanup.go: failed"}, Notes: []string{"a note"},
		},
		{Order: 20, Transition: "nothing", Proxy: "1.34.4", Kernel: "host", Backend: "iptables-legacy"},
	}
}

// The page is written by hand here, from what its head says the columns are.
func TestRender(t *testing.T) {
	page := facts.Render(rows(), "make e2e")
	for _, want := range []string{
		"Made by a run of `make e2e`; not edited by hand.",
		"| ipvs -> nftables | 1.37.2 | 6.1 | 85 -> 0 | 17 / 17 (170) -> 0 / 17 (84) | 55 -> none | 46 / 45 -> 0 / 0 | 0 / 0 | none -> ip kube-proxy, ip6 kube-proxy | vs/conntrack=1 |\n",
		"| nothing | 1.34.4 | host | 0 | 0 | none | 0 / 0 | 0 / 0 | none |  |\n",
		"**ipvs -> nftables** (1.37.2, kernel 6.1, iptables-nft)\n\n- a note\n- log: 4 x cleanup.go: failed\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if !strings.Contains(page, "\n\n"+facts.Table(rows())+"\n## Seen") {
		t.Errorf("the page is without its table:\n%s", page)
	}
	if strings.Contains(page, "**nothing**") {
		t.Error("a row without notes and errors has a paragraph")
	}
}

func TestKeepAndRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(facts.DirVariable, dir)
	want := rows()
	for _, i := range []int{1, 0} {
		if err := facts.Keep(want[i]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := facts.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was read is not what was kept (-want +got):\n%s", diff)
	}
}

func TestKeepWithoutAFolderKeepsNothing(t *testing.T) {
	t.Setenv(facts.DirVariable, "")
	if err := facts.Keep(rows()[0]); err != nil {
		t.Error(err)
	}
}
