package readiness

import (
	"fmt"
	"net/http"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func syncRules() []Rule {
	return []Rule{{
		ID:       "kube-proxy-not-in-sync",
		Scope:    offrampv1.Scope_SCOPE_NODE,
		Title:    "kube-proxy has not written all it was told to",
		Severity: "blocker; open when metrics or health did not answer",
		Meaning:  "Services and endpoints that changed since are not served on this node, while kube-proxy's health may be green.",
		Remedy:   "Look for errors in kube-proxy's log, mend them and restart it.",
		Source: "kubernetes pkg/proxy/metrics/metrics.go: sync_proxy_rules_last_timestamp_seconds against " +
			"sync_proxy_rules_last_queued_timestamp_seconds; seen: a failed first sync is never tried again, with health green",
		check: checkSync,
	}}
}

const syncRemedy = "Look for errors in kube-proxy's log (failed restores, missing modules or tools), mend them and restart it."

func checkSync(n *node, _ offrampv1.Target) outcome {
	switch n.running() {
	case offrampv1.ProxyMode_PROXY_MODE_UNKNOWN:
		return unread()
	case offrampv1.ProxyMode_PROXY_MODE_NONE:
		return quietly()
	}
	now := n.kubeProxyNow()
	if evidence := behind(now, n.kubeProxy().GetFamilies()); len(evidence) > 0 {
		return block(syncRemedy, evidence...)
	}
	switch {
	case len(now.GetSyncs()) == 0:
		return undecided("Let the agent reach kube-proxy's metrics address (metricsBindAddress).", "kube-proxy's metrics tell of no sync")
	case now.GetHealthStatus() == 0:
		return undecided("Let the agent reach kube-proxy's health address (healthzBindAddress).", "kube-proxy's /healthz did not answer")
	default:
		return quietly()
	}
}

// behind lists what is not in sync, family by family.
func behind(now *offrampv1.KubeProxyVolatile, families []offrampv1.AddressFamily) []string {
	var evidence []string
	told := map[offrampv1.AddressFamily]bool{}
	for _, sync := range now.GetSyncs() {
		told[sync.GetFamily()] = true
		if line := syncEvidence(sync); line != "" {
			evidence = append(evidence, line)
		}
	}
	for _, family := range families {
		untold := !told[family] && !told[offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED]
		if len(told) > 0 && untold {
			evidence = append(evidence, familyName(family)+": no sync yet")
		}
	}
	if status := now.GetHealthStatus(); status != 0 && status != http.StatusOK {
		evidence = append(evidence, fmt.Sprintf("/healthz answers with status %d", status))
	}
	return evidence
}

// syncEvidence says how a family is behind, "" when it is not.
func syncEvidence(sync *offrampv1.FamilySync) string {
	family := familyName(sync.GetFamily())
	if sync.GetLastSync() == nil {
		return fmt.Sprintf("%s: no sync yet, %d failures", family, sync.GetFailures())
	}
	last, queued := sync.GetLastSync().AsTime(), sync.GetLastQueued().AsTime()
	if sync.GetLastQueued() != nil && last.Before(queued) {
		return fmt.Sprintf("%s: last sync %s is before the last queued change %s, %d failures", family,
			last.Format(time.RFC3339), queued.Format(time.RFC3339), sync.GetFailures())
	}
	return ""
}

func familyName(family offrampv1.AddressFamily) string {
	switch family {
	case offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4:
		return "IPv4"
	case offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6:
		return "IPv6"
	default:
		return "all families"
	}
}
