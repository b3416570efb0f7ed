package readiness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxStepNames bounds Step.node_samples, as fleet.proto says.
const maxStepNames = 20

// Steps lists what to do next to bring a fleet to the target, in order. The cluster's findings are those of AssessCluster, with what
// is accepted marked. Nodes must have been assessed for that target. What is
// done already is not in the list; an empty list means that nothing is left to do. A step waits while one that must come
// before it is there.
func Steps(target offrampv1.Target, cluster []*offrampv1.Finding, nodes []Standing) []*offrampv1.Step {
	p := newPlanning(target, cluster, nodes)
	for _, make := range []func(){
		p.hear, p.pin, p.see, p.rebuild, p.plugin, p.strangers, p.nodePorts, p.restart, p.settings,
		p.clean, p.soak, p.canary, p.pools, p.dead,
	} {
		make()
	}
	return p.steps
}

// planning collects the steps in their order.
type planning struct {
	target offrampv1.Target
	// heard are the nodes to plan for that were heard of, quiet the others.
	heard, quiet []*Standing
	// kinds are the distinct assessments of heard, and kind is, for each of those, which one is its: fleets are large and most of
	// their nodes in one of few states.
	kinds   []*offrampv1.Assessment
	kind    []int
	cluster []*offrampv1.Finding
	steps   []*offrampv1.Step
	// blocked: a step is there without which no node should be switched.
	blocked bool
}

func newPlanning(target offrampv1.Target, cluster []*offrampv1.Finding, nodes []Standing) *planning {
	p := &planning{target: target, cluster: cluster}
	known := map[*offrampv1.Assessment]int{}
	p.heard, p.kind = make([]*Standing, 0, len(nodes)), make([]int, 0, len(nodes))
	for i := range nodes {
		node := &nodes[i]
		switch {
		case node.NotApplicable:
		case node.Silent || node.Assessment == nil:
			p.quiet = append(p.quiet, node)
		default:
			kind, seen := known[node.Assessment]
			if !seen {
				kind = len(p.kinds)
				known[node.Assessment], p.kinds = kind, append(p.kinds, node.Assessment)
			}
			p.heard, p.kind = append(p.heard, node), append(p.kind, kind)
		}
	}
	return p
}

// add puts a step on the list when there is something to do.
func (p *planning) add(step *offrampv1.Step, nodes []*Standing, gates bool) {
	step.Nodes = uint64(len(nodes))
	for _, node := range nodes[:min(len(nodes), maxStepNames)] {
		step.NodeSamples = append(step.NodeSamples, node.Node)
	}
	p.steps = append(p.steps, step)
	p.blocked = p.blocked || gates
}

// with returns the nodes that have one of the findings.
func (p *planning) with(ids ...string) []*Standing {
	return p.whose(func(assessment *offrampv1.Assessment) bool {
		return slices.ContainsFunc(assessment.GetFindings(), func(finding *offrampv1.Finding) bool {
			return slices.Contains(ids, finding.GetId()) && finding.GetAccepted() == nil
		})
	})
}

// whose returns the nodes whose assessment is wanted.
func (p *planning) whose(want func(*offrampv1.Assessment) bool) []*Standing {
	wanted, some := make([]bool, len(p.kinds)), false
	for kind, assessment := range p.kinds {
		wanted[kind] = want(assessment)
		some = some || wanted[kind]
	}
	if !some {
		return nil
	}
	found := make([]*Standing, 0, len(p.heard))
	for i, node := range p.heard {
		if wanted[p.kind[i]] {
			found = append(found, node)
		}
	}
	return found
}

func (p *planning) inPhase(phase offrampv1.Phase) []*Standing {
	nodes := p.whose(func(assessment *offrampv1.Assessment) bool { return assessment.GetPhase() == phase })
	return slices.DeleteFunc(nodes, func(node *Standing) bool { return node.Soaking })
}

// found is the cluster's finding of one of these ids, nil when there is none.
func (p *planning) found(ids ...string) *offrampv1.Finding {
	for _, finding := range p.cluster {
		if slices.Contains(ids, finding.GetId()) && finding.GetAccepted() == nil {
			return finding
		}
	}
	return nil
}

func (p *planning) hear() {
	if len(p.quiet) > 0 {
		p.add(&offrampv1.Step{
			Id: "hear-from-every-node", Title: "Find out why these nodes do not report",
			Why:      "What is not known is not ready: a node that nobody hears of may break first.",
			Commands: []string{"kubectl -n offramp get pods -o wide --field-selector spec.nodeName=NODE", "kubectl -n offramp logs -l app.kubernetes.io/name=offramp-agent --tail 20"},
		}, p.quiet, false)
	}
}

func (p *planning) pin() {
	nodes := p.with("mode-not-explicit")
	if len(nodes) == 0 && p.found("mode-not-explicit") == nil {
		return
	}
	p.add(&offrampv1.Step{
		Id: "pin-mode", Title: "Write the mode that runs now into kube-proxy's configuration",
		Why:      "An empty mode changes its meaning with Kubernetes 1.40; once it is written down, nothing moves before you move it.",
		Commands: []string{"kubectl -n kube-system edit configmap kube-proxy   # mode: iptables"},
	}, nodes, true)
}

func (p *planning) see() {
	nodes := p.with("section-unreadable", "running-mode-unknown")
	nodes = slices.DeleteFunc(nodes, func(node *Standing) bool { return node.Assessment.GetReady() != offrampv1.Verdict_VERDICT_UNKNOWN })
	if len(nodes) == 0 {
		return
	}
	p.add(&offrampv1.Step{
		Id: "see-every-node", Title: "Give the agents what they lack to read these nodes",
		Why:      "A part of the node that decides about readiness could not be read.",
		Commands: []string{"kubectl offramp node NODE"},
	}, nodes, false)
}

// rebuild leaves out what is for information alone: that it could not be told whether a feature is there is no reason for another image.
func (p *planning) rebuild() {
	found := map[string]bool{}
	nodes := p.whose(func(assessment *offrampv1.Assessment) (lacks bool) {
		for _, finding := range assessment.GetFindings() {
			if isOfImage(finding.GetId()) && finding.GetSeverity() != offrampv1.Severity_SEVERITY_INFO && finding.GetAccepted() == nil {
				found[finding.GetId()], lacks = true, true
			}
		}
		return lacks
	})
	if len(nodes) == 0 {
		return
	}
	step := &offrampv1.Step{
		Id: "rebuild-images", Title: "Bring these nodes to an image whose kernel and tools can do it",
		Why: "kube-proxy takes down the old rules before it looks at the kernel: a node that is switched too early serves nothing.",
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		step.Commands = append(step.Commands, "kubectl offramp nodes --finding "+id)
	}
	step.Commands = append(step.Commands, "kubectl offramp ready --target iptables   # the other way out")
	p.add(step, nodes, false)
}

// isOfImage reports whether a finding goes away with another image of the node.
func isOfImage(id string) bool {
	return id == "kernel-too-old" || id == "kernel-feature-missing" || id == "nft-version-clash"
}

func (p *planning) plugin() {
	if finding := p.found("network-plugin-cannot-follow"); finding != nil {
		p.add(&offrampv1.Step{
			Id: "upgrade-network-plugin", Title: "Upgrade the network plugin first", Why: firstOf(finding),
			Commands: []string{"kubectl offramp explain network-plugin-cannot-follow"},
		}, nil, true)
	}
}

func (p *planning) strangers() {
	if nodes := p.with("foreign-virtual-servers", "api-server-through-ipvs", "foreign-references"); len(nodes) > 0 {
		p.add(&offrampv1.Step{
			Id: "protect-other-software", Title: "Take other software out of the way of the switch",
			Why:      "Somebody else uses IPVS, or kube-proxy's chains, on these nodes, and the switch takes that away.",
			Commands: []string{"kubectl offramp explain foreign-virtual-servers", "kubectl offramp node NODE"},
		}, nodes, false)
	}
}

func (p *planning) nodePorts() {
	nodes := p.with("node-ports-on-other-addresses", "localhost-node-ports")
	if len(nodes) > 0 {
		p.add(&offrampv1.Step{
			Id: "fix-node-ports", Title: "Decide on which addresses node ports answer",
			Why:      "Clients use addresses on which nftables mode does not answer by default.",
			Commands: []string{"kubectl offramp explain node-ports-on-other-addresses", "kubectl -n kube-system edit configmap kube-proxy   # nodePortAddresses"},
		}, nodes, true)
	}
}

func (p *planning) restart() {
	nodes := p.with("modes-disagree", "kube-proxy-not-in-sync")
	finding := p.found("config-not-in-use")
	if len(nodes) == 0 && finding == nil {
		return
	}
	why := "On these nodes another mode runs than is configured, or kube-proxy does not keep up."
	if finding != nil {
		why = firstOf(finding)
	}
	p.add(&offrampv1.Step{
		Id: "bring-kube-proxy-in-line", Title: "Find out why kube-proxy does not do what it was told, and restart it", Why: why,
		Commands: []string{"kubectl -n kube-system logs -l k8s-app=kube-proxy --tail 50", "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE"},
	}, nodes, false)
}

func (p *planning) settings() {
	if finding := p.found("settings-nftables-ignores"); finding != nil {
		p.add(&offrampv1.Step{
			Id: "copy-settings", Title: "Copy settings that nftables mode does not read", Why: firstOf(finding),
			Commands: []string{"kubectl -n kube-system edit configmap kube-proxy   # nftables.masqueradeAll, nftables.masqueradeBit"},
		}, nil, true)
	}
}

func (p *planning) clean() {
	dirty := p.whose(func(assessment *offrampv1.Assessment) bool {
		unmoved := assessment.GetRunningMode() == offrampv1.ProxyMode_PROXY_MODE_IPVS && p.target != offrampv1.Target_TARGET_IPVS
		return AnyLeft(assessment.GetLeftovers()) && !unmoved
	})
	if len(dirty) > 0 {
		p.add(&offrampv1.Step{
			Id: "clean-up", Title: "Clean these nodes, or drain and reboot them",
			Why:      "They run another mode, and what the old one left still takes traffic, exposes the host's ports or reaches the wrong pods.",
			Commands: []string{"kubectl offramp cleanup NODE", "kubectl drain NODE --ignore-daemonsets && reboot   # the other way"},
		}, dirty, false)
	}
}

func (p *planning) soak() {
	soaking := p.soaking()
	if len(soaking) > 0 {
		p.add(&offrampv1.Step{
			Id: "soak", Title: "Wait: these nodes have switched and are clean, but not for long enough",
			Why:      "What breaks silently shows after hours.",
			Commands: []string{"kubectl offramp nodes --phase soaking"},
		}, soaking, true)
	}
}

func (p *planning) soaking() []*Standing {
	var soaking []*Standing
	for _, node := range p.heard {
		if node.Soaking {
			soaking = append(soaking, node)
		}
	}
	return soaking
}

// canary proposes the first node to switch, when none has switched yet.
func (p *planning) canary() {
	onIPVS := p.inPhase(offrampv1.Phase_PHASE_ON_IPVS)
	moved := p.whose(func(assessment *offrampv1.Assessment) bool {
		return assessment.GetPhase() == offrampv1.Phase_PHASE_DONE || assessment.GetPhase() == offrampv1.Phase_PHASE_SWITCHED_DIRTY
	})
	if len(onIPVS) == 0 || len(moved) > 0 || len(p.soaking()) > 0 {
		return
	}
	pick, why := choose(onIPVS)
	if pick == nil {
		return
	}
	p.add(&offrampv1.Step{
		Id: "first-canary", Title: "Switch one node first: " + pick.Node, Why: why, Waits: p.blocked,
		Commands: append(p.switching(), "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName="+pick.Node, "kubectl offramp node "+pick.Node),
	}, []*Standing{pick}, true)
}

// switching is how a DaemonSet takes a new mode node by node: no pod restarts by itself.
func (p *planning) switching() []string {
	return []string{
		`kubectl -n kube-system patch daemonset kube-proxy -p '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'`,
		"kubectl -n kube-system edit configmap kube-proxy   # mode: " + modeName(targetMode(p.target)),
	}
}

// choose takes, of the nodes that are ready, a worker with the fewest connections in the largest pool: the loss is small and
// what is learnt holds for the most nodes.
func choose(nodes []*Standing) (pick *Standing, why string) {
	size := map[string]int{}
	for _, node := range nodes {
		size[node.Pool]++
	}
	ready := slices.DeleteFunc(slices.Clone(nodes), func(node *Standing) bool {
		return node.Assessment.GetReady() != offrampv1.Verdict_VERDICT_READY || node.Unschedulable
	})
	if len(ready) == 0 {
		return nil, ""
	}
	best := slices.MinFunc(ready, func(a, b *Standing) int {
		return cmp.Or(order(a.ControlPlane, b.ControlPlane), cmp.Compare(size[b.Pool], size[a.Pool]),
			cmp.Compare(a.Connections, b.Connections), cmp.Compare(a.Node, b.Node))
	})
	return best, fmt.Sprintf("It is ready, carries %d connections and stands for %d nodes of its pool %q that are on ipvs.", best.Connections, size[best.Pool], best.Pool)
}

// order puts false first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// pools proposes the rest pool by pool, the one with the fewest nodes still on ipvs first: it is done soonest.
func (p *planning) pools() {
	left := map[string][]*Standing{}
	for _, node := range p.inPhase(offrampv1.Phase_PHASE_ON_IPVS) {
		left[node.Pool] = append(left[node.Pool], node)
	}
	names := make([]string, 0, len(left))
	for name := range left {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(left[a]), len(left[b])), cmp.Compare(a, b)) })
	for _, name := range names {
		ready := slices.DeleteFunc(slices.Clone(left[name]), func(node *Standing) bool { return node.Assessment.GetReady() != offrampv1.Verdict_VERDICT_READY })
		p.add(&offrampv1.Step{
			Id: "switch-pool", Title: fmt.Sprintf("Switch pool %q: %d of its %d nodes on ipvs are ready", name, len(ready), len(left[name])),
			Why: "One pool at a time keeps a mistake small.", Waits: true,
			Commands: []string{"kubectl offramp nodes --phase on-ipvs", "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE   # one by one"},
		}, left[name], false)
	}
}

func (p *planning) dead() {
	finding := p.found("dead-ipvs-settings", "ipvs-gate-set")
	if finding == nil || p.target == offrampv1.Target_TARGET_IPVS {
		return
	}
	p.add(&offrampv1.Step{
		Id: "delete-dead-settings", Title: "Delete what is left of ipvs mode from the configuration", Why: firstOf(finding),
		Waits:    len(p.inPhase(offrampv1.Phase_PHASE_ON_IPVS)) > 0,
		Commands: []string{"kubectl -n kube-system edit configmap kube-proxy   # the ipvs block, the feature gate KubeProxyIPVS"},
	}, nil, false)
}
