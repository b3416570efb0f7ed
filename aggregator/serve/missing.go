package serve

import (
	"fmt"
	"strings"

	"offramp.dev/offramp/aggregator/fleet"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// missing says why nodes of a filter are not among those that can be asked, for people; "" when all are. Those that never reported to
// this aggregator, which may have started a moment ago, cannot.
func (q *questions) missing(filter fleet.Filter) string {
	sum := q.store.Readiness(offrampv1.Target_TARGET_NFTABLES, filter, "")
	switch {
	case sum.GetIncomplete() != "":
		return sum.GetIncomplete()
	case sum.GetNeverSeen() > 0:
		return fmt.Sprintf("%d of %d nodes never reported to this aggregator: %s", sum.GetNeverSeen(), sum.GetNodes(), firstNames(sum.GetNeverSeenSamples()))
	default:
		return ""
	}
}

func firstNames(samples []string) string {
	const most = 5
	if len(samples) > most {
		return strings.Join(samples[:most], ", ") + ", …"
	}
	return strings.Join(samples, ", ")
}
