// Package readiness judges a node: facts in, findings and verdicts out.
//
// It is pure: no clock, no I/O, no Kubernetes client. Two questions are answered for a target mode: could the node go
// there (ready), and is it there with nothing else left (verify). Unknown is an answer: what could not be read, and what
// nobody can be said to own, never makes a node ready.
package readiness

import (
	"cmp"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Assess says what a node's facts mean for a target; an unspecified target is nftables. A section that is missing counts
// as unreadable, and the order of sections does not matter. Phases that need a clock or the cluster (soaking, silent,
// not applicable) are the caller's to set. The result shares nothing with facts.
func Assess(facts *offrampv1.NodeFacts, target offrampv1.Target) *offrampv1.Assessment {
	return AssessIn(facts, target, Surroundings{})
}

// AssessIn is Assess with what the cluster says about the node.
func AssessIn(facts *offrampv1.NodeFacts, target offrampv1.Target, around Surroundings) *offrampv1.Assessment {
	if target == offrampv1.Target_TARGET_UNSPECIFIED {
		target = offrampv1.Target_TARGET_NFTABLES
	}
	n := newNode(facts)
	n.around = around
	findings, weights := judge(n, target)
	assessment := &offrampv1.Assessment{
		Target:      target,
		Ready:       weights.ready.verdict(),
		Verify:      weights.verify.verdict(),
		Phase:       n.phase(),
		RunningMode: n.running(),
		Leftovers:   n.left,
		Findings:    findings,
	}
	if targetMode(target) == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		assessment.Ready, assessment.Verify = offrampv1.Verdict_VERDICT_UNKNOWN, offrampv1.Verdict_VERDICT_UNKNOWN
	}
	return assessment
}

// judge asks every rule.
func judge(n *node, target offrampv1.Target) ([]*offrampv1.Finding, weights) {
	var findings []*offrampv1.Finding
	var weights weights
	for _, rule := range Rules() {
		if rule.check == nil {
			continue
		}
		finding := rule.finding(rule.check(n, target))
		if finding == nil {
			continue
		}
		findings = append(findings, finding)
		weights.ready.add(finding)
		if !rule.ReadyOnly {
			weights.verify.add(finding)
		}
	}
	if running := n.running(); running != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN && running != targetMode(target) {
		weights.verify.blockers++
	}
	slices.SortFunc(findings, byWeight)
	return findings, weights
}

// byWeight puts the worst first, then sorts by id.
func byWeight(a, b *offrampv1.Finding) int {
	return cmp.Or(cmp.Compare(b.GetSeverity(), a.GetSeverity()), cmp.Compare(a.GetId(), b.GetId()))
}

// targetMode is the mode that a target stands for, unknown for a target that this version does not know.
func targetMode(target offrampv1.Target) offrampv1.ProxyMode {
	switch target {
	case offrampv1.Target_TARGET_NFTABLES:
		return offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	case offrampv1.Target_TARGET_IPTABLES:
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	case offrampv1.Target_TARGET_IPVS:
		return offrampv1.ProxyMode_PROXY_MODE_IPVS
	case offrampv1.Target_TARGET_NONE:
		return offrampv1.ProxyMode_PROXY_MODE_NONE
	default:
		return offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	}
}
