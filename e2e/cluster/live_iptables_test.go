package cluster_test

import (
	"encoding/hex"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// A node that moved from ipvs to iptables mode, which leaves everything, is cleaned under traffic: of what iptables mode uses
// nothing goes, and of what it does not nothing is left.
func TestLiveIPTables(t *testing.T) {
	t.Parallel()
	liveIPTables(t, cluster.NodeSpec{Kernel: "6.1"})
}

func liveIPTables(t *testing.T, spec cluster.NodeSpec) {
	l := newLive(t, spec)
	end(t, l.start(t, "ipvs"))
	p := l.start(t, "iptables")
	l.checkLeft(t)

	l.backwards(t)
	p = l.refusesAnotherMode(t, p)
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

// digestOf is a plan's digest as people give it to apply.
func digestOf(plan *offrampv1.Plan) string { return hex.EncodeToString(plan.GetDigest()) }
