package cleanup_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/internal/nstest"
)

// A clean-up for iptables mode takes ipvs mode's jumps to chains that both modes use, and leaves the chains. A restore brings
// these jumps back as well, to where they stood, once.
func TestJumpsToSharedChainsComeBack(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			zoo(t)
			kubeProxyIn(t, "ipvs-then-iptables", backend)
			before := look(t)
			n := newNode(t).as("ipvs-then-iptables")
			mustClean(t, n.apply())
			if cmp.Diff(before, look(t)) == "" {
				t.Fatal("nothing went")
			}
			n.proxy = ""
			for range 2 {
				if result, err := n.restore(noProxy, ""); err != nil || result.Failed() {
					t.Fatalf("restore: %v, %v", err, result)
				}
				if diff := cmp.Diff(before, look(t)); diff != "" {
					t.Errorf("before (-), after the restore (+):\n%.4000s", diff)
				}
			}
		})
	}
}
