package readiness

import (
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Behind reports whether a running kube-proxy has not written all it was told to, as the rule kube-proxy-not-in-sync sees it, and
// when the family that waits for the longest was synced last: zero where it never was. Whether kube-proxy is stuck, two looks
// tell: behind at both, and no sync between them.
func Behind(node *offrampv1.NodeFacts) (synced time.Time, is bool) {
	for _, section := range node.GetSections() {
		now := section.GetVolatile().GetKubeProxy()
		if now == nil || len(behind(now, section.GetStable().GetKubeProxy().GetFamilies())) == 0 {
			continue
		}
		return oldestBehind(now.GetSyncs()), true
	}
	return time.Time{}, false
}

func oldestBehind(syncs []*offrampv1.FamilySync) (oldest time.Time) {
	for _, sync := range syncs {
		switch {
		case syncEvidence(sync) == "":
		case sync.GetLastSync() == nil:
			return time.Time{}
		case oldest.IsZero() || sync.GetLastSync().AsTime().Before(oldest):
			oldest = sync.GetLastSync().AsTime()
		}
	}
	return oldest
}
