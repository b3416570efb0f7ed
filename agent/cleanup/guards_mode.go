package cleanup

import (
	"slices"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// guardMode asks whether the target is what runs, and whether it has taken over.
func (s *scope) guardMode(found *findings) {
	switch running := s.assessment.GetRunningMode(); {
	case running == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN || running == offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED:
		found.raise(GuardModeUnknown, s.modeEvidence("running-mode-unknown", "the running mode is unknown")...)
	case running != s.mode:
		found.raise(GuardModeIsNotTarget, "running: "+modeName(running)+s.modeSource(), "target: "+modeName(s.mode))
	}
	found.raise(s.syncGuard(), s.modeEvidence(notInSync, "")...)
	found.raise(GuardNeverSynced, s.modeEvidence("modes-disagree", "")...)
}

// notInSync is readiness' finding about a kube-proxy that lags behind.
const notInSync = "kube-proxy-not-in-sync"

// syncGuard tells a kube-proxy that lags behind from one that does not tell.
func (s *scope) syncGuard() string {
	undecided := func(f *offrampv1.Finding) bool { return f.GetId() == notInSync && f.GetUndecided() }
	if slices.ContainsFunc(s.assessment.GetFindings(), undecided) {
		return GuardSyncUnknown
	}
	return GuardNotInSync
}

// modeEvidence is what readiness says against the node in one finding: blockers, and what it could not tell. A warning of
// the same name is not meant. other is said where readiness says nothing.
func (s *scope) modeEvidence(id, other string) []string {
	for _, finding := range s.assessment.GetFindings() {
		against := finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER || finding.GetUndecided()
		if finding.GetId() == id && against {
			return finding.GetEvidence()
		}
	}
	if other == "" {
		return nil
	}
	return []string{other}
}

func (s *scope) modeSource() string {
	proxy := facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetStable().GetKubeProxy()
	if source := proxy.GetRunningModeSource(); source != "" {
		return " (" + source + ")"
	}
	return ""
}

func modeName(mode offrampv1.ProxyMode) string {
	switch mode {
	case offrampv1.ProxyMode_PROXY_MODE_IPTABLES:
		return "iptables"
	case offrampv1.ProxyMode_PROXY_MODE_IPVS:
		return "ipvs"
	case offrampv1.ProxyMode_PROXY_MODE_NFTABLES:
		return "nftables"
	case offrampv1.ProxyMode_PROXY_MODE_NONE:
		return "none"
	default:
		return "unknown"
	}
}
