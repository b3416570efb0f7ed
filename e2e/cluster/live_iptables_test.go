package cluster_test

import (
	"encoding/hex"
	"testing"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/e2e/cluster"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// A node that moved from ipvs to iptables mode, which leaves everything, is cleaned under traffic: of what iptables mode uses
// nothing goes, and of what it does not nothing is left.
func TestLiveIPTables(t *testing.T) {
	inItsOwnTime(t)
	t.Parallel()
	liveIPTables(t, cluster.NodeSpec{Kernel: "6.1"})
}

func liveIPTables(t *testing.T, spec cluster.NodeSpec) {
	l := newLive(t, spec)
	p := l.start(t, "ipvs")
	through, err := l.pods[0].StartLoadAt(t.Context(), l.pace, "pod/through-ipvs=long:"+clusterIP, "pod/through-ipvs6=long:"+clusterIP6)
	if err != nil {
		t.Fatal(err)
	}
	end(t, p)
	p = l.start(t, "iptables")
	l.checkLeft(t)
	l.refusesToCut(t, through)

	l.backwards(t)
	if spec.Kernel != "5.10" {
		// Before 5.13 kube-proxy does not start in the other mode.
		p = l.refusesAnotherMode(t, p)
	}
	before := l.native(t)
	l.cleansUnderTraffic(t, "iptables")
	l.nothingOfIPVS(t)
	after := l.native(t)
	for _, name := range []string{"nft4", "nft6"} {
		gone := before.removed(t, after, name)
		for _, line := range gone {
			if !ofIPVSAlone.MatchString(line) {
				t.Errorf("%s: %q went, which is not ipvs mode's alone", name, line)
			}
		}
		t.Logf("%s: %d lines of ipvs mode went", name, len(gone))
	}
	l.isDone(t, "iptables")
	end(t, l.goesOn(t, p))
}

// refusesToCut makes sure that connections through IPVS, which outlive a switch to iptables mode, keep a clean-up from beginning.
func (l *live) refusesToCut(t *testing.T, through *cluster.Load) {
	t.Helper()
	before := l.native(t)
	refused := l.mustExit(t, 2, l.applyArgs("iptables", "--yes")...)
	contains(t, "what refuses with connections through IPVS", refusals(t, refused), cleanup.GuardConnections)
	l.native(t).mustEqual(t, "an apply that would have cut connections", before)
	noFailure(t, "connections through IPVS", ended(t, through))
}

// digestOf is a plan's digest as people give it to apply.
func digestOf(plan *offrampv1.Plan) string { return hex.EncodeToString(plan.GetDigest()) }
