package cluster_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

// ofIPVSAlone are jumps and chains that only ipvs mode has (facts/kube-proxy.md sections 1.1 and 1.3).
var ofIPVSAlone = regexp.MustCompile(`KUBE-(NODE-PORT|LOAD-BALANCER|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER)( |$)|"kube-proxy firewall rules"`)

// backwardsScript takes ipvs mode's state away with native tools in the order that people write down: rules and sets, link,
// virtual servers. No source is changed before, and nobody waits for connections. What is still in use stays.
const backwardsScript = `
for tool in iptables-nft ip6tables-nft; do
	saved=$($tool-save -t filter)
	echo "$saved" | grep -E -e '^-A (INPUT|FORWARD|OUTPUT) .*-j KUBE-(IPVS-FILTER|IPVS-OUT-FILTER|NODE-PORT)$' -e '"kube-proxy firewall rules"' |
		sed -e '1i *filter' -e 's/^-A/-D/' -e '$a COMMIT' | $tool-restore --noflush
	for chain in KUBE-IPVS-FILTER KUBE-IPVS-OUT-FILTER; do $tool -F $chain; $tool -X $chain; done
done
for set in $(ipset list -n); do ipset destroy $set; done
ip link delete kube-ipvs0
ipvsadm -C
true
`

// backwards does it in the wrong order under the loop, which has to see that, and puts everything back with native tools.
func (l *live) backwards(t *testing.T) {
	t.Helper()
	before := l.native(t)
	saved := l.savedByHand(t)
	o := l.startLoop(t)
	old := l.longs(t, "old")
	result, err := l.node.RunInput(t.Context(), []byte(backwardsScript), "sh")
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("doing it backwards: %v, %+v", err, result)
	}
	reports := o.end(t, old)
	logCounts(t, "backwards", reports)
	checkFailures(t, "backwards", reports, "node/old", true)
	checkFailures(t, "backwards", reports, "node/old6", true)
	l.putBackByHand(t, saved)
	l.native(t).mustEqual(t, "what was put back by hand", before)
}

// saved is what the native tools saved, to be put back by them.
type saved struct{ sets, rules4, rules6, addresses, servers string }

func (l *live) savedByHand(t *testing.T) saved {
	t.Helper()
	output := func(argv ...string) string {
		text, err := cluster.Output(t.Context(), l.node, argv...)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return saved{
		output("ipset", "save"), output("iptables-nft-save"), output("ip6tables-nft-save"),
		linkCommands(output("ip", "-o", "address", "show", "dev", "kube-ipvs0")), output("ipvsadm", "-Sn"),
	}
}

// linkCommands make kube-ipvs0 with its addresses, as kube-proxy does.
func linkCommands(shown string) string {
	commands := "link add kube-ipvs0 type dummy\n"
	for line := range strings.Lines(shown) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] != "link/ether" {
			commands += fmt.Sprintf("address add %s dev kube-ipvs0\n", fields[3])
		}
	}
	return commands
}

func (l *live) putBackByHand(t *testing.T, s saved) {
	t.Helper()
	l.feed(t, s.sets, "ipset", "-exist", "restore")
	l.feed(t, s.rules4, "iptables-nft-restore")
	l.feed(t, s.rules6, "ip6tables-nft-restore")
	l.feed(t, s.addresses, "ip", "-batch", "-")
	l.feed(t, s.servers, "ipvsadm", "-R")
}

// feed gives a native tool its input.
func (l *live) feed(t *testing.T, text string, argv ...string) {
	t.Helper()
	result, err := l.node.RunInput(t.Context(), []byte(text), argv...)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%v: %v, exit status %d: %s%s", argv, err, result.ExitCode, result.Stdout, result.Stderr)
	}
}
