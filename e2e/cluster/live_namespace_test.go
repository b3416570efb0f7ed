package cluster_test

import (
	"regexp"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

// ofIPTablesMode are chains that only iptables mode has, and those that it shares with ipvs mode; KUBE-FIREWALL stays.
var ofIPTablesMode = regexp.MustCompile(`KUBE-(SVC|SVL|FW|EXT|SEP)-[A-Z2-7]{16}|KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|FORWARD|PROXY-FIREWALL|PROXY-CANARY)\b`)

// At a hundred requests a second for each path, in a namespace of the host: what iptables mode left beside live nftables, whose
// kube-proxy has no iptables, goes without a request that fails.
func TestLiveNamespace(t *testing.T) {
	t.Parallel()
	l := newLive(t, cluster.NodeSpec{})
	end(t, l.start(t, "iptables"))
	p := l.startWithout(t, "nftables", "iptables", "ip6tables")
	before := l.native(t)
	for _, name := range []string{"nft4", "nft6"} {
		if found := ofIPTablesMode.FindAllString(before[name], -1); len(found) < 100 {
			t.Fatalf("%s has %d words of iptables mode before the clean-up", name, len(found))
		}
	}
	o := l.startLoop(t)
	l.mustExit(t, 0, l.applyArgs("nftables", "--yes")...)
	noFailure(t, "clean-up in a namespace", o.end(t))
	after := l.native(t)
	after.mustEqual(t, "clean-up in a namespace", before, "nft4", "nft6")
	for _, name := range []string{"nft4", "nft6"} {
		before.removed(t, after, name)
		if found := ofIPTablesMode.FindAllString(after[name], -1); len(found) > 0 {
			t.Errorf("%s has %q", name, found)
		}
	}
	l.isDone(t, "nftables")
	end(t, l.goesOn(t, p))
}
