package readiness_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestBehind(t *testing.T) {
	const v4, v6 = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4, offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
	at := func(second int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(second, 0)) }
	family := func(family offrampv1.AddressFamily, synced, queued *timestamppb.Timestamp) *offrampv1.FamilySync {
		return &offrampv1.FamilySync{Family: family, LastSync: synced, LastQueued: queued}
	}
	for name, test := range map[string]struct {
		syncs  []*offrampv1.FamilySync
		health uint32
		synced time.Time
		behind bool
	}{
		"written an hour ago, and nothing to do since": {[]*offrampv1.FamilySync{family(v4, at(7200), at(7199)), family(v6, at(3600), at(3600))}, http.StatusOK, time.Time{}, false},
		"one family waits":   {[]*offrampv1.FamilySync{family(v4, at(7200), at(7300)), family(v6, at(3600), at(3600))}, http.StatusOK, time.Unix(7200, 0), true},
		"both wait":          {[]*offrampv1.FamilySync{family(v4, at(7200), at(7300)), family(v6, at(3600), at(3700))}, http.StatusOK, time.Unix(3600, 0), true},
		"one never synced":   {[]*offrampv1.FamilySync{family(v4, at(7200), at(7300)), family(v6, nil, at(3700))}, http.StatusOK, time.Time{}, true},
		"one is not told of": {[]*offrampv1.FamilySync{family(v4, at(7200), at(7200))}, http.StatusOK, time.Time{}, true},
		"health says no":     {[]*offrampv1.FamilySync{family(v4, at(1), at(1)), family(v6, at(1), at(1))}, http.StatusServiceUnavailable, time.Time{}, true},
		"nothing is known":   {nil, 0, time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synced, behind := readiness.Behind(&offrampv1.NodeFacts{Sections: []*offrampv1.Section{{
				Kind: offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY,
				Stable: &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{KubeProxy: &offrampv1.KubeProxyFacts{
					Families: []offrampv1.AddressFamily{v4, v6},
				}}},
				Volatile: &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: &offrampv1.KubeProxyVolatile{
					Syncs: test.syncs, HealthStatus: test.health,
				}}},
			}}})
			if behind != test.behind || !synced.Equal(test.synced) {
				t.Errorf("%v, %t", synced, behind)
			}
		})
	}
	if _, behind := readiness.Behind(nil); behind {
		t.Error("a node without facts is behind")
	}
}
