package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestEach(t *testing.T) {
	s, c, _ := newCluster(t)
	remembered := &v1.HistoryFacts{Entries: []*v1.HistoryEntry{{At: timestamppb.New(c.Now()), Kind: "mode", What: "ipvs to nftables"}}}
	session, _, _ := join(s, "b")
	report(t, session, encode(t, v1.SectionKind_SECTION_KIND_HISTORY, &v1.SectionStable{
		State: v1.SectionState_SECTION_STATE_PRESENT, Content: &v1.SectionStable_History{History: remembered},
	}))
	c.advance(time.Second)
	var seen []string
	s.Each(nftables, func(l Look) {
		row := fmt.Sprint(l.Summary.GetNode(), " ", l.Summary.GetLastSeen() != nil, " ", l.HistoryDigest != facts.Digest{})
		for _, entry := range l.History().GetEntries() {
			row += " " + entry.GetWhat()
		}
		seen = append(seen, row)
	})
	want := "a true false|b true true ipvs to nftables|quiet false false|virtual false false|win false false"
	if got := strings.Join(seen, "|"); got != want {
		t.Errorf("seen %q, want %q", got, want)
	}
}
