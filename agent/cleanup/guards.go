package cleanup

import (
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// findings collects guards that stand in the way.
type findings []*offrampv1.GuardFinding

// raise adds a guard where there is evidence for it.
func (f *findings) raise(id string, evidence ...string) {
	if len(evidence) > 0 {
		*f = append(*f, Finding(id, evidence...))
	}
}

// guards lists what stands in the way, in the order of Guards. Where nothing would be done, nothing can be harmed: then only
// those are left by which "nothing to do" may not be true.
func (s *scope) guards(anythingToDo bool) []*offrampv1.GuardFinding {
	var found findings
	if anythingToDo {
		s.guardMode(&found)
		s.guardRules(&found)
		s.guardHost(&found)
		s.guardTraffic(&found)
	}
	s.guardReading(&found)
	return inOrder(found)
}

// inOrder sorts by the order of the list of guards.
func inOrder(found findings) []*offrampv1.GuardFinding {
	var sorted []*offrampv1.GuardFinding
	for _, guard := range Guards() {
		for _, finding := range found {
			if finding.GetId() == guard.ID {
				sorted = append(sorted, finding)
			}
		}
	}
	return sorted
}

// override notes the reasons that a person gave. A guard that cannot be overridden is not, whatever was given.
func override(found []*offrampv1.GuardFinding, reasons map[string]string) []*offrampv1.GuardFinding {
	for _, finding := range found {
		if finding.GetCanBeOverridden() {
			finding.OverriddenBecause = reasons[finding.GetId()]
		}
	}
	return found
}
