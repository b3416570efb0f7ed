package metrics

import (
	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// fleet gives every phase, also those that no node is in, so that an alert on one of them has something to look at.
func (c *collector) fleet(sum *offrampv1.GetReadinessResponse, gauge emit) {
	phases := map[offrampv1.Phase]uint64{}
	for _, count := range sum.GetPhases() {
		phases[count.GetPhase()] = count.GetNodes()
	}
	for number := range offrampv1.Phase_name {
		if phase := offrampv1.Phase(number); phase != offrampv1.Phase_PHASE_UNSPECIFIED {
			gauge(c.nodes, float64(phases[phase]), phaseWord(phase))
		}
	}
	gauge(c.verdicts, float64(sum.GetReady()), "ready")
	gauge(c.verdicts, float64(sum.GetBlocked()), "blocked")
	gauge(c.verdicts, float64(sum.GetUnknown()), "unknown")
	gauge(c.neverSeen, float64(sum.GetNeverSeen()))
	gauge(c.dirty, float64(sum.GetWithLeftovers()))
	gauge(c.unread, float64(len(sum.GetUnread())))
	c.left(sum.GetLeftovers(), gauge)
	c.found(sum, gauge)
	for _, pool := range sum.GetPools() {
		for _, count := range pool.GetPhases() {
			gauge(c.pools, float64(count.GetNodes()), pool.GetName(), phaseWord(count.GetPhase()))
		}
	}
}

func (c *collector) left(left *offrampv1.Leftovers, gauge emit) {
	for kind, count := range readiness.LeftoverKinds(left) {
		gauge(c.leftovers, float64(count), kind)
	}
}

// found tells of findings that a node or the cluster has; of those that none has there is no series.
func (c *collector) found(sum *offrampv1.GetReadinessResponse, gauge emit) {
	for _, finding := range sum.GetFindings() {
		gauge(c.findings, float64(finding.GetNodes()), finding.GetId(), severityWord(finding.GetSeverity()))
		gauge(c.accepted, float64(finding.GetAccepted()), finding.GetId())
		gauge(c.undecided, float64(finding.GetUndecided()), finding.GetId())
	}
	told := map[string]bool{}
	for _, finding := range sum.GetClusterFindings() {
		if finding.GetAccepted() == nil && !told[finding.GetId()] {
			told[finding.GetId()] = true
			gauge(c.cluster, 1, finding.GetId(), severityWord(finding.GetSeverity()))
		}
	}
}

func (c *collector) figures(figures fleet.Figures, gauge emit) {
	gauge(c.connected, float64(figures.Connected))
	gauge(c.stuck, float64(figures.Stuck))
	for number, name := range offrampv1.ProxyMode_name {
		if mode := offrampv1.ProxyMode(number); mode != offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED {
			gauge(c.modes, float64(figures.Modes[mode]), word(name, "PROXY_MODE_"))
		}
	}
}

// deadline goes by versions, not by dates: nobody can say when a cluster is upgraded.
func (c *collector) deadline(version string, gauge emit) {
	refused, removed, ok := readiness.MinorsLeft(version)
	if !ok {
		return
	}
	gauge(c.minors, float64(refused), "refused")
	gauge(c.minors, float64(removed), "removed")
}

func phaseWord(phase offrampv1.Phase) string { return word(phase.String(), "PHASE_") }

func severityWord(severity offrampv1.Severity) string { return word(severity.String(), "SEVERITY_") }
