package readiness

import (
	"fmt"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func kernelRules() []Rule {
	return []Rule{{
		ID:        "kernel-too-old",
		Scope:     offrampv1.Scope_SCOPE_NODE,
		Title:     "The kernel is older than nftables mode asks for",
		Severity:  "blocker for nftables; warning when nftables mode runs all the same; open when the release begins with no version",
		Meaning:   "kube-proxy in nftables mode refuses to start on it, after it has taken down the old mode's rules: the node serves no Service.",
		Remedy:    "Upgrade the kernel to 5.13 or later, or choose iptables mode for this node.",
		Source:    "kubernetes pkg/util/kernel NFTablesKubeProxyKernelVersion: 5.13",
		ReadyOnly: true,
		check:     checkKernel,
	}}
}

const kernelRemedy = "Upgrade the kernel to 5.13 or later, or choose iptables mode for this node. A start of kube-proxy in nftables " +
	"mode destroys the old rules before it looks at the kernel."

func checkKernel(n *node, target offrampv1.Target) outcome {
	if target != offrampv1.Target_TARGET_NFTABLES {
		return quietly()
	}
	if n.kernel() == nil {
		return unread()
	}
	kernel := n.kernel()
	runs := n.running() == offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	if kernel.GetMajor() == 0 && runs {
		return quietly()
	}
	if kernel.GetMajor() == 0 {
		return undecided(kernelRemedy, fmt.Sprintf("kernel release %q does not begin with a version", kernel.GetRelease()))
	}
	major, minor := kubeproxy.NFTablesMinimumKernel()
	if kernel.GetMajor() > major || (kernel.GetMajor() == major && kernel.GetMinor() >= minor) {
		return quietly()
	}
	if runs {
		return warn(kernelRemedy, kernelEvidence(kernel), "nftables mode runs all the same")
	}
	evidence := []string{kernelEvidence(kernel)}
	if vendor := vendorKernel(kernel.GetRelease()); vendor != "" {
		evidence = append(evidence, vendor+" brings parts of newer kernels back, but kube-proxy compares the number alone unless "+
			"KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK is set (from 1.33 on)")
	}
	return block(kernelRemedy, evidence...)
}

func kernelEvidence(kernel *offrampv1.KernelFacts) string {
	major, minor := kubeproxy.NFTablesMinimumKernel()
	return fmt.Sprintf("kernel %s, nftables mode asks for %d.%d", kernel.GetRelease(), major, minor)
}

// vendorKernel names the distribution whose mark a kernel release carries, where its kernels are known for back-ports.
func vendorKernel(release string) string {
	for _, vendor := range []struct{ mark, name string }{
		{".el7", "an Enterprise Linux 7 kernel"},
		{".el8", "an Enterprise Linux 8 kernel"},
		{".amzn2", "an Amazon Linux 2 kernel"},
		{"-default", "a SUSE kernel"},
	} {
		if strings.Contains(release, vendor.mark) {
			return vendor.name
		}
	}
	return ""
}
