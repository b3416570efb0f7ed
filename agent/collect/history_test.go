package collect

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func aMoment() time.Time { return time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC) }

func TestHistory(t *testing.T) {
	h := newHistory(aMoment(), nil)
	for i, mode := range []offrampv1.ProxyMode{
		offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, // before anything is known
		offrampv1.ProxyMode_PROXY_MODE_IPVS,
		offrampv1.ProxyMode_PROXY_MODE_IPVS,
		offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, // kube-proxy restarts
		offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED,
		offrampv1.ProxyMode_PROXY_MODE_NFTABLES,
		offrampv1.ProxyMode_PROXY_MODE_NONE,
	} {
		h.see(glance{mode: mode}, aMoment().Add(time.Duration(i)*time.Minute))
	}
	section := h.section(aMoment().Add(time.Hour))
	wantState(t, section, sectionPresent)
	content := section.GetStable().GetHistory()
	if content.GetDurable() || !content.GetSince().AsTime().Equal(aMoment()) {
		t.Errorf("durable %v, since %v", content.GetDurable(), content.GetSince().AsTime())
	}
	var changes []string
	for _, change := range content.GetModeChanges() {
		changes = append(changes, fmt.Sprint(change.GetAt().AsTime().Format("15:04"), " ", change.GetFrom(), " ", change.GetTo()))
	}
	want := []string{"17:05 PROXY_MODE_IPVS PROXY_MODE_NFTABLES", "17:06 PROXY_MODE_NFTABLES PROXY_MODE_NONE"}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	h := newHistory(aMoment(), nil)
	modes := []offrampv1.ProxyMode{offrampv1.ProxyMode_PROXY_MODE_IPVS, offrampv1.ProxyMode_PROXY_MODE_IPTABLES}
	for i := range 31 {
		h.see(glance{mode: modes[i%2]}, aMoment().Add(time.Duration(i)*time.Minute))
	}
	changes := h.section(aMoment().Add(time.Hour)).GetStable().GetHistory().GetModeChanges()
	if len(changes) != 20 || !changes[19].GetAt().AsTime().Equal(aMoment().Add(30*time.Minute)) {
		t.Errorf("%d changes, the last at %v", len(changes), changes[len(changes)-1].GetAt().AsTime())
	}
}

func TestHistoryOfAOneShotReadingIsAbsent(t *testing.T) {
	var none *history
	wantState(t, none.section(aMoment()), sectionAbsent)
}
