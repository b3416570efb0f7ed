package readiness

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// The minor versions of Kubernetes 1 at which something changes for ipvs mode.
const (
	minorGateOff  = 40
	minorCodeGone = 43
)

// Timeline is when what happens to ipvs mode, oldest first. What lies in the future is a plan of the Kubernetes project.
func Timeline() []*offrampv1.Milestone {
	const kep = "KEP-5495"
	return []*offrampv1.Milestone{
		{Version: "1.31", What: "nftables mode is beta and on; nodePortAddresses means the primary address there when empty", Source: "KEP-3866, kubernetes PR 123105"},
		{Version: "1.33", What: "nftables mode is stable", Source: "KEP-3866"},
		{Version: "1.35", What: "kube-proxy warns at each start in ipvs mode (log and event IPVSDeprecation)", Source: kep + ", kubernetes PR 134539"},
		{Version: "1.37", What: "the feature gate KubeProxyIPVS exists and is on; kube-proxy warns when no mode is configured", Source: kep + ", kubernetes 1.37 pkg/features/kube_features.go"},
		{Version: "1.39", What: "last version that starts in ipvs mode without an override", Source: kep, Planned: true},
		{Version: "1.40", What: "KubeProxyIPVS is off by default: kube-proxy with mode ipvs exits at start", Source: kep, Planned: true},
		{Version: "1.40", What: "an empty mode means nftables instead of iptables", Source: "KEP-5343", Planned: true},
		{Version: "1.43", What: "the code of ipvs mode is gone, its clean-up too", Source: kep, Planned: true},
		{Version: "1.46", What: "the feature gate KubeProxyIPVS is gone: a configuration that names it is refused", Source: kep, Planned: true},
	}
}

// MinorsLeft is how many minor versions of Kubernetes lie between a version, such as "v1.37.2", and the one whose kube-proxy does
// not start in ipvs mode any more, and the one that has no code for it: 0 at that version, negative after it. ok is false for what
// is no version of Kubernetes 1.
func MinorsLeft(version string) (refused, removed int, ok bool) {
	major, minor, ok := versionOf(version)
	if !ok || major != 1 {
		return 0, 0, false
	}
	return minorGateOff - minor, minorCodeGone - minor, true
}
