package facts_test

import (
	"encoding/hex"
	"slices"
	"testing"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The expected sums come from sha256sum, such as: printf 'TCP 10.96.0.1:443\nUDP 10.96.0.10:53\n' | sha256sum
func TestListDigest(t *testing.T) {
	tests := map[string]struct {
		items []string
		want  string
	}{
		"empty":      {nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		"sorted":     {[]string{"TCP 10.96.0.1:443", "UDP 10.96.0.10:53"}, "d64e0215971177ce6ed6694b73de7965cf3cf41677acc9ce54cf0e49ffba845c"},
		"not sorted": {[]string{"UDP 10.96.0.10:53", "TCP 10.96.0.1:443"}, "d64e0215971177ce6ed6694b73de7965cf3cf41677acc9ce54cf0e49ffba845c"},
		"one":        {[]string{"a"}, "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"},
		"bytewise":   {[]string{"b", "B"}, "986532120894462fa41fe9cb4a6f07d914e828501b986e7f928cbc9ca3071f3a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tt.items)
			got := facts.ListDigest(offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS, tt.items)
			if hex.EncodeToString(got.GetDigest()) != tt.want {
				t.Errorf("digest %x, want %s", got.GetDigest(), tt.want)
			}
			if got.GetCount() != uint64(len(tt.items)) || got.GetName() != offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS {
				t.Errorf("got %v", got)
			}
			if !slices.Equal(before, tt.items) {
				t.Error("the items were moved about")
			}
		})
	}
}

func TestEncodeIsStable(t *testing.T) {
	build := func(owner string) *offrampv1.SectionStable {
		return &offrampv1.SectionStable{
			State: offrampv1.SectionState_SECTION_STATE_PRESENT,
			Content: &offrampv1.SectionStable_Ipsets{Ipsets: &offrampv1.IpsetsFacts{
				Sets: 2, Owners: []*offrampv1.OwnerCount{{Owner: owner, Count: 2}},
			}},
		}
	}
	first, firstDigest, err := facts.Encode(build("kube-proxy/ipvs"))
	if err != nil {
		t.Fatal(err)
	}
	_, again, _ := facts.Encode(build("kube-proxy/ipvs"))
	_, other, _ := facts.Encode(build("kubelet"))
	if firstDigest != again || firstDigest == other || firstDigest != facts.Sum(first) {
		t.Errorf("digests %x %x %x", firstDigest, again, other)
	}
}

func TestEncodeRefusesBrokenText(t *testing.T) {
	_, _, err := facts.Encode(&offrampv1.SectionStable{Error: "\xff"})
	if err == nil {
		t.Error("a string that is not UTF-8 was encoded")
	}
}

func TestParseDigest(t *testing.T) {
	for length, want := range map[int]bool{0: false, 31: false, 32: true, 33: false} {
		if _, ok := facts.ParseDigest(make([]byte, length)); ok != want {
			t.Errorf("%d bytes: ok = %v", length, ok)
		}
	}
}

func TestFind(t *testing.T) {
	node := &offrampv1.NodeFacts{Sections: []*offrampv1.Section{
		{Kind: offrampv1.SectionKind_SECTION_KIND_KERNEL}, {Kind: offrampv1.SectionKind_SECTION_KIND_IPVS},
	}}
	if facts.Find(node, offrampv1.SectionKind_SECTION_KIND_IPVS) != node.GetSections()[1] {
		t.Error("the ipvs section was not found")
	}
	if facts.Find(node, offrampv1.SectionKind_SECTION_KIND_HISTORY) != nil || facts.Find(nil, 1) != nil {
		t.Error("a section was found that is not there")
	}
}
