package readiness

import (
	"fmt"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Standing is one node of a fleet as the rules about whole fleets see it.
type Standing struct {
	Node, Pool string
	// Assessment for the target that is asked about.
	Assessment *offrampv1.Assessment
	// Silent: not heard of in time, or never.
	Silent bool
	// Virtual and Windows nodes have no kube-proxy of Linux.
	NotApplicable bool
	// Soaking: switched and clean, not for long enough.
	Soaking bool
	// ControlPlane and Unschedulable nodes are no good canaries.
	ControlPlane, Unschedulable bool
	// Connections through the node's virtual servers now.
	Connections uint64
}

// Upgrade says whether a fleet could run a minor version of Kubernetes 1, such as "1.40" or "v1.40.2". The answer goes by the
// timeline; nodes must have been assessed for nftables, whose rules know the kernel's age. ok is false for what is no version.
func Upgrade(version string, facts *offrampv1.ClusterFacts, nodes []Standing) (answer *offrampv1.UpgradeAnswer, ok bool) {
	major, minor, ok := versionOf(version)
	if !ok || major != 1 {
		return nil, false
	}
	u := &upgrade{minor: minor, counts: map[string]*problem{}, kinds: map[*offrampv1.Assessment][]*problem{}}
	for _, finding := range AssessCluster(facts, offrampv1.Target_TARGET_NFTABLES) {
		u.configured(finding)
	}
	for _, node := range nodes {
		if !node.NotApplicable {
			u.node(node)
		}
	}
	return u.answer(), true
}

// upgrade adds up what stands between a fleet and a version.
type upgrade struct {
	minor  int
	counts map[string]*problem
	order  []*problem
	// kinds are the problems of each distinct assessment: most nodes of a large fleet share one.
	kinds map[*offrampv1.Assessment][]*problem
}

// problem is one reason, with the nodes that have it.
type problem struct {
	text    string
	verdict offrampv1.Verdict
	nodes   []string
	count   uint64
}

func (u *upgrade) problem(verdict offrampv1.Verdict, text string) *problem {
	one := u.counts[text]
	if one == nil {
		one = &problem{text: text, verdict: verdict}
		u.counts[text] = one
		u.order = append(u.order, one)
	}
	return one
}

func (p *problem) add(node string) {
	p.count++
	if len(p.nodes) < maxEvidence {
		p.nodes = append(p.nodes, node)
	}
}

const (
	upgradeBlocked = offrampv1.Verdict_VERDICT_BLOCKED
	upgradeUnknown = offrampv1.Verdict_VERDICT_UNKNOWN
	upgradeReady   = offrampv1.Verdict_VERDICT_READY
)

// configured takes in what the cluster's objects ask for: a pod that starts anew would do that.
func (u *upgrade) configured(finding *offrampv1.Finding) {
	switch {
	case finding.GetId() == ipvsConfigured && u.minor >= minorGateOff:
		u.problem(upgradeBlocked, "the cluster's configuration asks for ipvs mode, with which kube-proxy 1.40 does not start: "+firstOf(finding))
	case finding.GetId() == "mode-not-explicit" && u.minor >= minorGateOff:
		u.problem(upgradeReady, "the cluster's configuration names no mode: it becomes nftables with 1.40: "+firstOf(finding))
	}
}

func firstOf(finding *offrampv1.Finding) string { return strings.Join(finding.GetEvidence()[:1], "") }

func (u *upgrade) node(node Standing) {
	if node.Silent || node.Assessment == nil {
		u.problem(upgradeUnknown, "not heard of in time").add(node.Node)
		return
	}
	problems, known := u.kinds[node.Assessment]
	if !known {
		problems = u.problems(node.Assessment)
		u.kinds[node.Assessment] = problems
	}
	for _, one := range problems {
		one.add(node.Node)
	}
}

// problems are those of a node with this assessment.
func (u *upgrade) problems(assessment *offrampv1.Assessment) (all []*problem) {
	has := map[string]bool{}
	for _, finding := range assessment.GetFindings() {
		has[finding.GetId()] = true
	}
	if one := u.mode(assessment.GetRunningMode(), has); one != nil {
		all = append(all, one)
	}
	if u.minor >= minorGateOff && has["mode-not-explicit"] && has["kernel-too-old"] {
		all = append(all, u.problem(upgradeBlocked, "no mode is configured: 1.40 chooses nftables, for which the kernel is too old"))
	}
	if u.minor >= minorCodeGone && assessment.GetPhase() == offrampv1.Phase_PHASE_SWITCHED_DIRTY {
		all = append(all, u.problem(upgradeReady, "leftovers of ipvs mode, which kube-proxy 1.43 cannot clean any more"))
	}
	return all
}

func (u *upgrade) mode(running offrampv1.ProxyMode, has map[string]bool) *problem {
	onIPVS := running == offrampv1.ProxyMode_PROXY_MODE_IPVS || has[ipvsConfigured]
	switch {
	case onIPVS && u.minor >= minorCodeGone:
		return u.problem(upgradeBlocked, "on ipvs, whose code is gone in 1.43")
	case onIPVS && u.minor >= minorGateOff && has["ipvs-gate-set"]:
		return u.problem(upgradeReady, "on ipvs, held by the feature gate KubeProxyIPVS until 1.42")
	case onIPVS && u.minor >= minorGateOff:
		return u.problem(upgradeBlocked, "on ipvs, with which kube-proxy 1.40 does not start")
	case onIPVS:
		return u.problem(upgradeReady, "on ipvs, deprecated but served")
	case running == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN || running == offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED:
		return u.problem(upgradeUnknown, "the mode is not known")
	}
	return nil
}

// answer sorts the reasons, the worst first, and takes the worst for the verdict.
func (u *upgrade) answer() *offrampv1.UpgradeAnswer {
	answer := &offrampv1.UpgradeAnswer{Version: fmt.Sprintf("1.%d", u.minor), Verdict: upgradeReady}
	for _, verdict := range []offrampv1.Verdict{upgradeBlocked, upgradeUnknown, upgradeReady} {
		for _, one := range u.order {
			if one.verdict == verdict {
				answer.Reasons = append(answer.Reasons, one.String())
			}
		}
		if len(answer.GetReasons()) > 0 && answer.GetVerdict() == upgradeReady {
			answer.Verdict = verdict
		}
	}
	for _, milestone := range Timeline() {
		if _, minor, _ := versionOf(milestone.GetVersion()); minor <= u.minor {
			answer.Milestones = append(answer.Milestones, milestone)
		}
	}
	return answer
}

func (p *problem) String() string {
	if p.count == 0 {
		return p.text
	}
	names := strings.Join(p.nodes[:min(len(p.nodes), 3)], " ")
	if p.count > 3 {
		names += " …"
	}
	nodes := "nodes"
	if p.count == 1 {
		nodes = "node"
	}
	return fmt.Sprintf("%d %s: %s (%s)", p.count, nodes, p.text, names)
}
