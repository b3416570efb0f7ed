package readiness_test

import (
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// "leftovers: none" must not be said of a node whose ipsets nobody could read.
func TestWhatWasNotReadMayHoldLeftovers(t *testing.T) {
	for _, kind := range []offrampv1.SectionKind{
		offrampv1.SectionKind_SECTION_KIND_IPVS, offrampv1.SectionKind_SECTION_KIND_IPVS_LINK, offrampv1.SectionKind_SECTION_KIND_IPSETS,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6,
		offrampv1.SectionKind_SECTION_KIND_NFTABLES,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			facts := captureFacts(t, "nftables", 0)
			if left := readiness.Assess(facts, toNFTables).GetLeftovers(); left.GetUndecided() {
				t.Fatal("undecided with every section read")
			}
			for _, section := range facts.GetSections() {
				if section.GetKind() == kind {
					section.Stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE, Error: "no permission"}
				}
			}
			if left := readiness.Assess(facts, toNFTables).GetLeftovers(); !left.GetUndecided() {
				t.Errorf("leftovers %v", left)
			}
		})
	}
}
