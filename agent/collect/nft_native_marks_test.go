package collect

import (
	"testing"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Rules of native tables that set or match the masquerade mark are told, by whether they set it; other bits of the mark,
// other people's use of meta, and kube-proxy's own tables are not.
func TestForeignMarksOfNativeTables(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, `table inet firewalld {
	chain marking {
		meta mark set 0x4000
		meta mark & 0x4000 == 0x4000 counter accept
		meta mark 0x4000 accept
		meta mark set 0x8000
		meta mark & 0x8000 == 0x8000 accept
		iifname "eth0" accept
		ct mark 0x4000 accept
	}
}
table ip user {
	set names { type ifname; elements = { "lo" } }
	chain after { type nat hook postrouting priority 90; meta mark set meta mark | 0x4000; masquerade; }
	chain mixed { meta mark & 0x4000 == 0 meta mark set meta mark ^ 0x4000; meta mark & 0x4000 == 0 accept; }
}
table ip kube-proxy {
	chain mark-for-masquerade { meta mark set meta mark | 0x4000; }
	chain masquerading { meta mark & 0x4000 == 0 return; }
}
`, "nft", "-f", "-")
	native := nftablesOf(t, scanRules(t))
	wantProto(t, "foreign marks", []*offrampv1.NftMark{
		{Family: "inet", Table: "firewalld", Chain: "marking", Sets: true},
		{Family: "inet", Table: "firewalld", Chain: "marking"},
		{Family: "inet", Table: "firewalld", Chain: "marking"},
		{Family: "ip", Table: "user", Chain: "after", Sets: true},
		{Family: "ip", Table: "user", Chain: "mixed", Sets: true},
		{Family: "ip", Table: "user", Chain: "mixed"},
	}, native.GetForeignMarks())
	if native.GetForeignMarkCount() != 6 {
		t.Errorf("%d foreign marks, want 6", native.GetForeignMarkCount())
	}
}

// Very many are counted, and told as far as a report may hold.
func TestForeignMarksAreCut(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	rules := ""
	for range 50 {
		rules += "meta mark set 0x4000\n"
	}
	run(t, "table ip user { chain many {\n"+rules+"}\n}\n", "nft", "-f", "-")
	native := nftablesOf(t, scanRules(t))
	if len(native.GetForeignMarks()) != 20 || native.GetForeignMarkCount() != 50 {
		t.Errorf("%d told, %d counted; want 20 of 50", len(native.GetForeignMarks()), native.GetForeignMarkCount())
	}
}
