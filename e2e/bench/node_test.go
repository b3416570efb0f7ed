package bench_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

const (
	services = 10_000
	// sample is how many operations of each of the two long kinds the loop is measured with.
	sample = 100
	// capture is what the Services are added to: a node of 33 Services, both families, with every kind of Service.
	capture = "ipvs"
)

// node is a node of a size, in a guest.
type node struct {
	t     *testing.T
	guest *lab.Guest
}

// newNode is the guest as it was booted; become gives it its state.
func newNode(t *testing.T, g *lab.Guest) *node {
	t.Helper()
	return &node{t: t, guest: g}
}

// become takes everything away and gives the node the capture's state with 10,000 further Services, as kube-proxy of ipvs
// mode writes them: virtual server with two real servers, address, members of the three sets that ClusterIPs are in.
func (n *node) become() {
	n.t.Helper()
	n.run(nil, "sh", "-c", `ipvsadm -C; nft flush ruleset; for i in 1 2 3 4 5; do ipset destroy 2>/dev/null && break; sleep 1; done
		for link in eth0 kube-ipvs0; do ip link del $link 2>/dev/null; done; true`)
	if err := lab.Restore(n.t.Context(), n.guest, capture); err != nil {
		n.t.Fatal(err)
	}
	var servers, sets, addresses strings.Builder
	for i := range services {
		vip := address(i)
		fmt.Fprintf(&addresses, "address add %s/32 dev kube-ipvs0\n", vip)
		fmt.Fprintf(&sets, "add KUBE-CLUSTER-IP %s,tcp:80\nadd KUBE-IPVS-IPS %s\n", vip, vip)
		fmt.Fprintf(&servers, "-A -t %s:80 -s lc\n", vip)
		for _, network := range []string{"10.244", "10.245"} {
			pod := fmt.Sprintf("%s.%d.%d", network, i>>8, i&255)
			fmt.Fprintf(&servers, "-a -t %s:80 -r %s:8080 -m -w 1\n", vip, pod)
			fmt.Fprintf(&sets, "add KUBE-LOOP-BACK %s,tcp:8080,%s\n", pod, pod)
		}
	}
	n.run([]byte(sets.String()), "ipset", "-exist", "restore")
	n.run([]byte(addresses.String()), "ip", "-batch", "-")
	n.run([]byte(servers.String()), "ipvsadm", "-R")
}

func address(i int) string { return fmt.Sprintf("10.97.%d.%d", i>>8, i&255) }

func (n *node) run(input []byte, argv ...string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 8*time.Minute)
	defer cancel()
	result, err := n.guest.RunInput(ctx, input, argv...)
	if err != nil {
		n.t.Fatal(err)
	}
	if result.ExitCode != 0 {
		n.t.Fatalf("%s: exit status %d: %.1000s", argv[0], result.ExitCode, result.Stderr)
	}
}

// byHand measures 200 operations of the loop that people write, and scales each kind to how often the loop does it. What it
// does with sets and rules is left out: it is in the loop's favour.
func (n *node) byHand() time.Duration {
	n.t.Helper()
	n.become()
	var servers, addresses, back, backAgain strings.Builder
	for i := range sample {
		fmt.Fprintf(&back, "address add %s/32 dev kube-ipvs0\n", address(i))
		fmt.Fprintf(&backAgain, "-A -t %s:80 -s lc\n", address(i))
		fmt.Fprintf(&servers, "ipvsadm -D -t %s:80 || exit 9\n", address(i))
		fmt.Fprintf(&addresses, "ip address del %s/32 dev kube-ipvs0 || exit 9\n", address(i))
	}
	one := timed(n.t, n.guest, []int{0}, "sh", "-c", servers.String())
	two := timed(n.t, n.guest, []int{0}, "sh", "-c", addresses.String())
	n.t.Logf("%d times ipvsadm -D %s, ip address del %s", sample, one, two)
	n.run([]byte(back.String()), "ip", "-batch", "-")
	n.run([]byte(backAgain.String()), "ipvsadm", "-R")
	return (one + two) * services / sample
}

// byKubeProxy measures kube-proxy --cleanup, which ends with 1 on a good day, on the node as byHand left it.
func (n *node) byKubeProxy() time.Duration {
	n.t.Helper()
	took := timed(n.t, n.guest, []int{0, 1}, proxy, "--cleanup")
	n.t.Logf("kube-proxy --cleanup %s", took)
	return took
}

// byAgent measures the plan, the backup, the clean-up and the verification. Nothing listens behind the Services, so that
// connections are not tried.
func (n *node) byAgent() time.Duration {
	n.t.Helper()
	n.become()
	took := timed(n.t, n.guest, []int{0}, agent, "cleanup", "apply", "--target", "none", "--yes", "-o", "json",
		"--assert-no-kube-proxy", "a benchmark", "--state-dir", stateDir, "--timeout", "5m", "--no-connect")
	n.t.Logf("offramp-agent cleanup apply %s", took)
	n.run(nil, "sh", "-c", `test -z "$(ipvsadm -Sn)" && ! ip link show kube-ipvs0 2>/dev/null && test -z "$(ipset list -n)"`)
	return took
}
