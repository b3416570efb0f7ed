package cluster_test

import (
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

// The clean-ups on live modes on the kernels that make e2e leaves out. nftables mode needs 5.13.
func TestLiveEveryKernel(t *testing.T) {
	if !everyKernel() {
		t.Skip("runs by make e2e-all")
	}
	for _, s := range []struct {
		kernel string
		target string
		run    func(*testing.T, cluster.NodeSpec)
	}{
		{"6.1", "nftables", liveNFTables},
		{"5.10", "iptables", liveIPTables},
		{"6.12", "iptables", liveIPTables},
	} {
		t.Run(s.kernel+" "+s.target, func(t *testing.T) {
			t.Parallel()
			s.run(t, cluster.NodeSpec{Kernel: s.kernel})
		})
	}
}
