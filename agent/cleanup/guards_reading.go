package cleanup

import (
	"maps"
	"slices"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// guardReading asks whether everything was seen in which something of kube-proxy's can be.
func (s *scope) guardReading(found *findings) {
	problems := map[offrampv1.SectionKind]string{}
	for _, kind := range kernelSections() {
		if problem := sectionProblem(facts.Find(s.facts, kind)); problem != "" {
			problems[kind] = problem
		}
	}
	maps.Copy(problems, s.inv.Problems)
	evidence := make([]string, 0, len(problems))
	for _, kind := range slices.Sorted(maps.Keys(problems)) {
		evidence = append(evidence, kind.String()+": "+problems[kind])
	}
	found.raise(GuardSectionUnread, evidence...)
	if problem := s.attributionProblem(); problem != "" {
		found.raise(GuardUnattributed, problem)
	}
}

func (s *scope) attributionProblem() string {
	return facts.Find(s.facts, offrampv1.SectionKind_SECTION_KIND_IPVS).GetStable().GetIpvs().GetAttributionError()
}

func (s *scope) iptablesFacts(kind offrampv1.SectionKind) *offrampv1.IptablesFacts {
	return facts.Find(s.facts, kind).GetStable().GetIptables()
}

// kernelSections is where something of kube-proxy's can be.
func kernelSections() []offrampv1.SectionKind {
	return []offrampv1.SectionKind{
		offrampv1.SectionKind_SECTION_KIND_IPVS,
		offrampv1.SectionKind_SECTION_KIND_IPVS_LINK,
		offrampv1.SectionKind_SECTION_KIND_IPSETS,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6,
		offrampv1.SectionKind_SECTION_KIND_NFTABLES,
		offrampv1.SectionKind_SECTION_KIND_ADDRESSES,
	}
}
