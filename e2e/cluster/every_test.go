package cluster_test

import (
	"os"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
)

// everyVariable set to 1 runs every combination, which takes hours in software: see make e2e-all.
const everyVariable = "OFFRAMP_E2E_ALL"

// Both versions of kube-proxy, both backends of iptables and all kernels, for the switches from ipvs mode.
func TestEveryCombination(t *testing.T) {
	if os.Getenv(everyVariable) != "1" {
		t.Skip("runs by make e2e-all")
	}
	for _, kernel := range []string{"6.1", "6.12", "5.10"} {
		for _, proxy := range []kube.Program{kube.Proxy137, kube.Proxy134} {
			for _, legacy := range []bool{false, true} {
				spec := cluster.NodeSpec{Kernel: kernel, Proxy: proxy, Legacy: legacy}
				everySwitch(t, spec)
			}
		}
	}
}

func everySwitch(t *testing.T, spec cluster.NodeSpec) {
	name := spec.Kernel + " " + spec.Proxy.Version + " nft"
	if spec.Legacy {
		name = spec.Kernel + " " + spec.Proxy.Version + " legacy"
	}
	for _, s := range []struct {
		name string
		run  func(*testing.T, cluster.NodeSpec)
	}{{"to nftables", switchToNFTables}, {"to iptables", switchToIPTables}, {"removed", removeProxy}} {
		if s.name == "to nftables" && spec.Kernel == "5.10" {
			continue // nftables mode refuses that kernel; see TestKernelTooOld
		}
		t.Run(name+" "+s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, spec)
		})
	}
}
