package readiness

import (
	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Accept returns the assessment as it is with some findings accepted, by id: they stay in sight, marked, and no longer weigh. The
// assessment is not changed; it is returned itself when nothing of it is accepted.
func Accept(assessment *offrampv1.Assessment, accepted map[string]*offrampv1.Acceptance) *offrampv1.Assessment {
	if !anyAccepted(assessment.GetFindings(), accepted) {
		return assessment
	}
	after := proto.CloneOf(assessment)
	AcceptFindings(after.GetFindings(), accepted)
	var weights weights
	for _, finding := range after.GetFindings() {
		rule, found := Explain(finding.GetId())
		if finding.GetAccepted() != nil {
			continue
		}
		weights.ready.add(finding)
		if !found || !rule.ReadyOnly {
			weights.verify.add(finding)
		}
	}
	running := known(after.GetRunningMode())
	if running != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN && running != targetMode(after.GetTarget()) {
		weights.verify.blockers++
	}
	after.Ready, after.Verify = weights.ready.verdict(), weights.verify.verdict()
	return after
}

func anyAccepted(findings []*offrampv1.Finding, accepted map[string]*offrampv1.Acceptance) bool {
	for _, finding := range findings {
		if accepted[finding.GetId()] != nil {
			return true
		}
	}
	return false
}

// AcceptFindings marks the findings that are accepted.
func AcceptFindings(findings []*offrampv1.Finding, accepted map[string]*offrampv1.Acceptance) {
	for _, finding := range findings {
		finding.Accepted = accepted[finding.GetId()]
	}
}
