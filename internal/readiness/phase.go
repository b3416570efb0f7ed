package readiness

import (
	"slices"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// phase is how far the node has come, as far as its facts alone can tell.
func (n *node) phase() offrampv1.Phase {
	switch {
	case n.running() == offrampv1.ProxyMode_PROXY_MODE_IPVS:
		return offrampv1.Phase_PHASE_ON_IPVS
	case !n.settled():
		return offrampv1.Phase_PHASE_UNKNOWN
	case n.holdsIPVS():
		return offrampv1.Phase_PHASE_SWITCHED_DIRTY
	case !n.read(kernelKinds()...):
		return offrampv1.Phase_PHASE_UNKNOWN
	case n.ranIPVS():
		return offrampv1.Phase_PHASE_DONE
	case !n.read(offrampv1.SectionKind_SECTION_KIND_SYSCTLS, offrampv1.SectionKind_SECTION_KIND_HISTORY):
		return offrampv1.Phase_PHASE_UNKNOWN
	default:
		return offrampv1.Phase_PHASE_UNAFFECTED
	}
}

// settled reports whether it is known what runs, or that nothing that could be seen does.
func (n *node) settled() bool {
	if n.running() != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		return true
	}
	return n.read(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY) && !n.kubeProxySeen() &&
		n.kubeProxy().GetHostProcessesVisible()
}

// holdsIPVS reports whether something that ipvs mode made is in the kernel.
func (n *node) holdsIPVS() bool {
	if slices.ContainsFunc(n.held, func(h holding) bool { return h.owner == kubeproxy.OwnerIPVS }) {
		return true
	}
	return slices.ContainsFunc(backends(), func(part backend) bool {
		return n.sharedMode(part.kind) == offrampv1.ProxyMode_PROXY_MODE_IPVS
	})
}

// ranIPVS reports whether the node remembers ipvs mode, or its kernel shows all of that mode's IPVS settings.
func (n *node) ranIPVS() bool {
	for _, change := range n.history().GetModeChanges() {
		if change.GetFrom() == offrampv1.ProxyMode_PROXY_MODE_IPVS || change.GetTo() == offrampv1.ProxyMode_PROXY_MODE_IPVS {
			return true
		}
	}
	return n.ipvsTrace()
}

// ipvsTrace reports whether every sysctl that only IPVS software sets has the value that ipvs mode gives it.
func (n *node) ipvsTrace() bool {
	traces := 0
	for _, sysctl := range kubeproxy.IPVSSysctls(n.kernel().GetMajor(), n.kernel().GetMinor()) {
		if !sysctl.Trace {
			continue
		}
		if n.sysctl(sysctl.Path) != sysctl.Value {
			return false
		}
		traces++
	}
	return traces > 0
}

// sysctl is the value of a kernel parameter, "" when it is absent or could not be read.
func (n *node) sysctl(path string) string {
	for _, value := range n.sysctls() {
		if value.GetPath() == path {
			return value.GetValue()
		}
	}
	return ""
}
