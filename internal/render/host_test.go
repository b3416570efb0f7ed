package render

import (
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func hostSection(facts *offrampv1.HostFacts) *offrampv1.Section {
	section := without(offrampv1.SectionKind_SECTION_KIND_HOST, offrampv1.SectionState_SECTION_STATE_PRESENT, "")
	section.Stable.Content = &offrampv1.SectionStable_Host{Host: facts}
	return section
}

func TestHost(t *testing.T) {
	wantLines(t, sectionText(hostSection(&offrampv1.HostFacts{
		Features: []*offrampv1.KernelFeature{
			{Name: "nft_nat", State: offrampv1.FeatureState_FEATURE_STATE_LOADED},
			{Name: "nft_fib", State: offrampv1.FeatureState_FEATURE_STATE_MISSING},
			{Name: "nft_ct", State: offrampv1.FeatureState_FEATURE_STATE_UNKNOWN},
			{Name: "nft_masq", State: offrampv1.FeatureState_FEATURE_STATE_UNKNOWN},
		},
		Ipv6Off:      true,
		Programs:     []*offrampv1.HostProgram{{Path: "/usr/sbin/nft", Version: "1.0.6"}, {Path: "/usr/sbin/ipset"}},
		ProgramsSeen: []string{"docker", "keepalived"},
		Files: []*offrampv1.HostFile{
			{Path: "/etc/iptables/rules.v4", Kind: "iptables rules", Names: []string{"KUBE-SERVICES", "KUBE-SEP-A"}},
			{Path: "/etc/ipset.conf", Kind: "ipset sets", Error: "too large"},
		},
		Unreadable: []string{"/lib/modules: not in sight"},
	})),
		"  host: present, 4 features of its kernel looked for",
		"      features that are missing: nft_fib",
		"      features that could not be told: nft_ct nft_masq",
		"      IPv6 is off",
		"      programs: /usr/sbin/nft 1.0.6, /usr/sbin/ipset",
		"      others that run here: docker, keepalived",
		"      /etc/iptables/rules.v4 (iptables rules) names: KUBE-SERVICES KUBE-SEP-A",
		"      /etc/ipset.conf (ipset sets) names: not known (too large)",
		"      could not be looked at: /lib/modules: not in sight")
	wantLines(t, sectionText(hostSection(&offrampv1.HostFacts{})), "  host: present, 0 features of its kernel looked for")
}

// Each kind of section that this version makes is one that it can show.
func TestNoSectionIsUnknown(t *testing.T) {
	contents := (&offrampv1.SectionStable{}).ProtoReflect().Descriptor().Oneofs().ByName("content").Fields()
	for i := range contents.Len() {
		stable := &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_PRESENT}
		stable.ProtoReflect().Set(contents.Get(i), stable.ProtoReflect().NewField(contents.Get(i)))
		text := sectionText(&offrampv1.Section{Stable: stable})
		if text == "  unknown: present, of a kind that this version does not know\n" {
			t.Errorf("the content %s cannot be shown", contents.Get(i).Name())
		}
	}
}
