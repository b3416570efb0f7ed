package publish

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxFindings bounds the findings in a Fleet's status.
const maxFindings = 50

// fleetStatus is the status of a Fleet as deploy/base/crd.yaml has it.
type fleetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Target             string             `json:"target"`
	Nodes              nodeCounts         `json:"nodes"`
	Phases             []phaseCount       `json:"phases,omitempty"`
	Leftovers          leftoverCounts     `json:"leftovers"`
	Findings           []findingCount     `json:"findings,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type nodeCounts struct {
	Total         int64 `json:"total"`
	Ready         int64 `json:"ready"`
	Blocked       int64 `json:"blocked"`
	Unknown       int64 `json:"unknown"`
	AtTarget      int64 `json:"atTarget"`
	WithLeftovers int64 `json:"withLeftovers"`
	Silent        int64 `json:"silent"`
	NeverSeen     int64 `json:"neverSeen"`
	NotApplicable int64 `json:"notApplicable"`
}

type phaseCount struct {
	Phase string `json:"phase"`
	Nodes int64  `json:"nodes"`
}

type leftoverCounts struct {
	VirtualServers int64 `json:"virtualServers"`
	Links          int64 `json:"links"`
	LinkAddresses  int64 `json:"linkAddresses"`
	Ipsets         int64 `json:"ipsets"`
	Chains         int64 `json:"chains"`
	Jumps          int64 `json:"jumps"`
	Tables         int64 `json:"tables"`
}

type findingCount struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Scope    string `json:"scope"`
	Title    string `json:"title,omitempty"`
	Nodes    int64  `json:"nodes"`
}

// number is a count as JSON of the API has it.
func number(count uint64) int64 { return int64(min(count, 1<<62)) }

// statusOf is the status of a fleet. before is the one that it follows: a condition that stays what it was keeps its time.
func statusOf(sum *offrampv1.GetReadinessResponse, at arrived, nodesRead bool, generation int64, before fleetStatus) fleetStatus {
	left := sum.GetLeftovers()
	status := fleetStatus{
		ObservedGeneration: generation, Target: render.Word(sum.GetTarget()),
		Nodes: nodeCounts{
			Total: number(sum.GetNodes()), Ready: number(sum.GetReady()), Blocked: number(sum.GetBlocked()), Unknown: number(sum.GetUnknown()),
			AtTarget: number(at.there), WithLeftovers: number(sum.GetWithLeftovers()), Silent: number(sum.GetSilent()),
			NeverSeen: number(sum.GetNeverSeen()), NotApplicable: number(sum.GetNotApplicable()),
		},
		Leftovers: leftoverCounts{
			VirtualServers: number(left.GetVirtualServers()), Links: number(left.GetLinks()), LinkAddresses: number(left.GetLinkAddresses()),
			Ipsets: number(left.GetIpsets()), Chains: number(left.GetChains()), Jumps: number(left.GetJumps()), Tables: number(left.GetTables()),
		},
		Findings: findings(sum),
	}
	for _, count := range sum.GetPhases() {
		status.Phases = append(status.Phases, phaseCount{render.Word(count.GetPhase()), number(count.GetNodes())})
	}
	for _, one := range before.Conditions {
		status.Conditions = append(status.Conditions, *one.DeepCopy())
	}
	for _, now := range conditions(sum, at, nodesRead, generation) {
		meta.SetStatusCondition(&status.Conditions, now)
	}
	return status
}

// findings are those about the cluster, then those about nodes, worst first.
func findings(sum *offrampv1.GetReadinessResponse) (all []findingCount) {
	for _, finding := range sum.GetClusterFindings() {
		all = append(all, findingCount{finding.GetId(), render.Word(finding.GetSeverity()), "cluster", finding.GetTitle(), 0})
	}
	for _, finding := range sum.GetFindings() {
		all = append(all, findingCount{finding.GetId(), render.Word(finding.GetSeverity()), "node", finding.GetTitle(), number(finding.GetNodes())})
	}
	return all[:min(len(all), maxFindings)]
}

func (s fleetStatus) same(other fleetStatus) bool { return equality.Semantic.DeepEqual(s, other) }
