package readiness

import (
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func readingRules() []Rule {
	return []Rule{{
		ID:       "section-unreadable",
		Scope:    offrampv1.Scope_SCOPE_NODE,
		Title:    "A part of the node could not be read",
		Severity: "open when the section decides about the target; info otherwise",
		Meaning:  "What was not read is not clean: nothing is concluded from it.",
		Remedy:   "Give the agent what it lacks and look again.",
		Source:   "what was not read is not clean",
		check:    checkReading,
	}}
}

const readingRemedy = "Give the agent what it lacks (capabilities NET_ADMIN and NET_RAW, the host's network and process namespaces) " +
	"and look again."

// checkReading leaves the question open where a section matters to the target, and only mentions the others.
func checkReading(n *node, target offrampv1.Target) outcome {
	var mattering, aside []string
	for _, kind := range sectionKinds() {
		problem := n.problems[kind]
		if problem == "" {
			continue
		}
		line := sectionName(kind) + ": " + problem
		if n.matters(kind, target) {
			mattering = append(mattering, line)
			continue
		}
		aside = append(aside, line)
	}
	switch {
	case len(mattering) > 0:
		return undecided(readingRemedy, append(mattering, aside...)...)
	case len(aside) > 0:
		return inform(readingRemedy, aside...)
	default:
		return quietly()
	}
}

// matters reports whether nothing can be said about a target without a section. What the host brings decides no more once the
// target's mode runs.
func (n *node) matters(kind offrampv1.SectionKind, target offrampv1.Target) bool {
	switch kind {
	case offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY:
		return true
	case offrampv1.SectionKind_SECTION_KIND_KERNEL:
		return target == offrampv1.Target_TARGET_NFTABLES
	case offrampv1.SectionKind_SECTION_KIND_HOST:
		needsHost := target == offrampv1.Target_TARGET_NFTABLES || target == offrampv1.Target_TARGET_IPTABLES
		return needsHost && n.running() != targetMode(target)
	default:
		return slices.Contains(kernelKinds(), kind)
	}
}

// sectionName is how people call a section: "iptables nft ipv4".
func sectionName(kind offrampv1.SectionKind) string {
	name := strings.TrimPrefix(kind.String(), "SECTION_KIND_")
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}
