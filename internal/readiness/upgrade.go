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
	u := &upgrade{minor: minor, counts: map[string]*problem{}}
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
}

// problem is one reason, with the nodes that have it.
type problem struct {
	text    string
	verdict offrampv1.Verdict
	nodes   []string
	count   uint64
}

func (u *upgrade) add(verdict offrampv1.Verdict, text, node string) {
	one := u.counts[text]
	if one == nil {
		one = &problem{text: text, verdict: verdict}
		u.counts[text] = one
		u.order = append(u.order, one)
	}
	if node == "" {
		return
	}
	one.count++
	if len(one.nodes) < maxEvidence {
		one.nodes = append(one.nodes, node)
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
		u.add(upgradeBlocked, "the cluster's configuration asks for ipvs mode, with which kube-proxy 1.40 does not start: "+firstOf(finding), "")
	case finding.GetId() == "mode-not-explicit" && u.minor >= minorGateOff:
		u.add(upgradeReady, "the cluster's configuration names no mode: it becomes nftables with 1.40: "+firstOf(finding), "")
	}
}

func firstOf(finding *offrampv1.Finding) string { return strings.Join(finding.GetEvidence()[:1], "") }

func (u *upgrade) node(node Standing) {
	if node.Silent || node.Assessment == nil {
		u.add(upgradeUnknown, "not heard of in time", node.Node)
		return
	}
	has := map[string]bool{}
	for _, finding := range node.Assessment.GetFindings() {
		has[finding.GetId()] = true
	}
	u.mode(node, has)
	if u.minor >= minorGateOff && has["mode-not-explicit"] && has["kernel-too-old"] {
		u.add(upgradeBlocked, "no mode is configured: 1.40 chooses nftables, for which the kernel is too old", node.Node)
	}
	if u.minor >= minorCodeGone && node.Assessment.GetPhase() == offrampv1.Phase_PHASE_SWITCHED_DIRTY {
		u.add(upgradeReady, "leftovers of ipvs mode, which kube-proxy 1.43 cannot clean any more", node.Node)
	}
}

func (u *upgrade) mode(node Standing, has map[string]bool) {
	running := node.Assessment.GetRunningMode()
	onIPVS := running == offrampv1.ProxyMode_PROXY_MODE_IPVS || has[ipvsConfigured]
	switch {
	case onIPVS && u.minor >= minorCodeGone:
		u.add(upgradeBlocked, "on ipvs, whose code is gone in 1.43", node.Node)
	case onIPVS && u.minor >= minorGateOff && has["ipvs-gate-set"]:
		u.add(upgradeReady, "on ipvs, held by the feature gate KubeProxyIPVS until 1.42", node.Node)
	case onIPVS && u.minor >= minorGateOff:
		u.add(upgradeBlocked, "on ipvs, with which kube-proxy 1.40 does not start", node.Node)
	case onIPVS:
		u.add(upgradeReady, "on ipvs, deprecated but served", node.Node)
	case running == offrampv1.ProxyMode_PROXY_MODE_UNKNOWN || running == offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED:
		u.add(upgradeUnknown, "the mode is not known", node.Node)
	}
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
