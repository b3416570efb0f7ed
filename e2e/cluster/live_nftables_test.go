package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/cluster"
)

// A node that moved from ipvs to nftables mode with a kube-proxy whose modprobe fails: all of ipvs mode is left beside live
// nftables. It is cleaned under traffic; then it is rolled back to ipvs mode, and last kube-proxy leaves it for good.
func TestLiveNFTables(t *testing.T) {
	inItsOwnTime(t)
	t.Parallel()
	liveNFTables(t, cluster.NodeSpec{Kernel: "6.12"})
}

func liveNFTables(t *testing.T, spec cluster.NodeSpec) {
	l := newLive(t, spec)
	fresh := l.native(t)
	end(t, l.start(t, "ipvs"))
	p := l.startWithout(t, "nftables", "modprobe")
	l.checkLeft(t)
	addresses := l.savedByHand(t).addresses

	l.backwards(t)
	l.cleansUnderTraffic(t, "nftables")
	l.nothingOfIPVS(t)
	l.isDone(t, "nftables")
	l.closesSockets(t, "nftables", addresses)
	p = l.goesOn(t, p)
	end(t, p)

	p = l.rollsBack(t)
	plan, code := l.plan(t, "none", "--assert-no-kube-proxy", "a test")
	if code != 2 {
		t.Errorf("no kube-proxy is asserted while one runs: exit status %d, want 2: %v", code, plan.GetGuards())
	}
	end(t, p)
	l.leavesForGood(t, fresh)
}

// checkLeft makes sure that everything of ipvs mode is there to be cleaned.
func (l *live) checkLeft(t *testing.T) {
	t.Helper()
	s := l.look(t)
	if s.VirtualServers == 0 || s.Sets4 != 17 || s.Sets6 != 17 || !s.Link || s.NFT.Chains4 == 0 || s.NFT.Chains6 == 0 {
		t.Fatalf("not all of ipvs mode is left: %+v", s)
	}
}

// rollsBack has kube-proxy run in ipvs mode again, without nft, so that its tables are left, and removes them under traffic.
func (l *live) rollsBack(t *testing.T) *cluster.Proxy {
	t.Helper()
	p := l.startWithout(t, "ipvs", "nft")
	before := l.native(t)
	if before["native4"] == "" || before["native6"] == "" {
		t.Fatal("the tables of nftables mode are gone before the clean-up")
	}
	o := l.startLoop(t)
	l.mustExit(t, 0, l.applyArgs("ipvs", "--yes", "--wait-drained", "1m")...)
	noFailure(t, "roll-back to live ipvs", o.end(t))
	after := l.native(t)
	after.mustEqual(t, "roll-back", before, "native4", "native6")
	check(t, "tables of nftables mode", after["native4"]+after["native6"], "")
	l.isDone(t, "ipvs")
	return p
}

// leavesForGood cleans a node without a kube-proxy: it is then as it was before the first one. Nobody takes over here, so no
// connection to a Service works afterwards, and none is tried.
func (l *live) leavesForGood(t *testing.T, fresh native) {
	t.Helper()
	const assert, reason = "--assert-no-kube-proxy", "a test took it away"
	before := l.native(t)
	l.mustExit(t, 0, l.applyArgs("none", "--yes", "--no-connect", assert, reason, "--wait-drained", "1m")...)
	after := l.native(t)
	after.mustEqual(t, "a node that kube-proxy left", fresh, "sysctl")
	if diff := cmp.Diff(before["sysctl"], after["sysctl"]); diff != "" {
		t.Errorf("sysctls changed:\n%s", diff)
	}
	l.isDone(t, "none", assert, reason)
}

// kube-proxy restarted in another mode, whether between plan and apply or while apply waits for connections: it refuses, and
// nothing has changed but by kube-proxy. p runs in iptables mode, and another one does again afterwards.
func (l *live) refusesAnotherMode(t *testing.T, p *cluster.Proxy) *cluster.Proxy {
	t.Helper()
	plan, code := l.plan(t, "iptables", "--wait-drained", "5m")
	check(t, "exit status of the plan", code, 3)
	digest := digestOf(plan)
	before := l.native(t)
	old := l.longs(t, "old")
	apply := l.background(t, l.applyArgs("iptables", "--plan", digest, "--wait-drained", "5m")...)
	l.sourcesChanged(t)
	end(t, p)
	p = l.startWithout(t, "nftables", "modprobe")
	switched := l.native(t)
	ended(t, old)
	if code, err := apply.Wait(); err != nil || code != 2 {
		t.Errorf("apply after a wait in which the mode changed: %v, exit status %d, want 2: %s", err, code, apply.Output())
	}
	refused := l.native(t)
	refused.mustEqual(t, "an apply that refused after the wait", switched, "route")
	check(t, "routes that were put back", refused["route"], before["route"])

	text := l.mustExit(t, 2, l.applyArgs("iptables", "--plan", digest, "--wait-drained", "5m")...)
	if ids := strings.Join(refusals(t, text), " "); ids == "" {
		t.Error("it was refused by nothing")
	} else {
		t.Logf("after the plan kube-proxy was restarted in another mode: refused by %s", ids)
	}
	l.native(t).mustEqual(t, "an apply after a restart in another mode", refused)
	end(t, p)
	time.Sleep(time.Second)
	return l.start(t, "iptables")
}
