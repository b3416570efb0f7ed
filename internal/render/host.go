package render

import (
	"fmt"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// host tells what of the host's own files and kernel matters to a move. What could not be told stands beside it.
func (p *page) host(name string, facts *offrampv1.HostFacts) {
	p.line(2, "%s: present, %s of its kernel looked for", name, count(uint64(len(facts.GetFeatures())), "feature"))
	p.field(6, "features that are missing", features(facts, offrampv1.FeatureState_FEATURE_STATE_MISSING))
	p.field(6, "features that could not be told", features(facts, offrampv1.FeatureState_FEATURE_STATE_UNKNOWN))
	if facts.GetIpv6Off() {
		p.line(6, "IPv6 is off")
	}
	programs := make([]string, 0, len(facts.GetPrograms()))
	for _, program := range facts.GetPrograms() {
		programs = append(programs, strings.TrimSpace(program.GetPath()+" "+program.GetVersion()))
	}
	p.field(6, "programs", strings.Join(programs, ", "))
	p.field(6, "others that run here", strings.Join(facts.GetProgramsSeen(), ", "))
	for _, file := range facts.GetFiles() {
		p.line(6, "%s (%s) names: %s", Clean(file.GetPath()), Clean(file.GetKind()), naming(file))
	}
	p.field(6, "could not be looked at", strings.Join(facts.GetUnreadable(), "; "))
}

// features are the names of those in a state.
func features(facts *offrampv1.HostFacts, state offrampv1.FeatureState) string {
	var names []string
	for _, feature := range facts.GetFeatures() {
		if feature.GetState() == state {
			names = append(names, feature.GetName())
		}
	}
	return strings.Join(names, " ")
}

// naming is what of kube-proxy's a file names, or why that is not known.
func naming(file *offrampv1.HostFile) string {
	if failure := file.GetError(); failure != "" {
		return fmt.Sprintf("not known (%s)", Clean(failure))
	}
	return Clean(strings.Join(file.GetNames(), " "))
}
