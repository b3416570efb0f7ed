package metrics

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// node tells what the last reading of the node found; nothing before the first one. What could not be told has no series.
type node struct {
	ended, modes, leftovers, undecided, synced, queued, failures, started, healthy *prometheus.Desc

	mu    sync.Mutex
	known []prometheus.Metric
}

func newNode() *node {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("offramp_agent_"+name, help, labels, nil)
	}
	return &node{
		ended:     describe("scan_last_timestamp_seconds", "When the last reading of the node ended, by the node's clock."),
		modes:     describe("running_mode", "1 for the mode that kube-proxy runs in, 0 for the others.", "mode"),
		leftovers: describe("leftovers", "What kube-proxy made and its running mode does not use, by kind.", "kind"),
		undecided: describe("leftovers_undecided", "1 where it could not be told of everything whether it is left over."),
		synced:    describe("kube_proxy_last_sync_timestamp_seconds", "When kube-proxy last finished a sync, by its own word.", "family"),
		queued:    describe("kube_proxy_last_queued_timestamp_seconds", "When kube-proxy was last told of a change, by its own word.", "family"),
		failures:  describe("kube_proxy_sync_failures_total", "Syncs and restores that failed since kube-proxy started, by its own count.", "family"),
		started:   describe("kube_proxy_start_time_seconds", "When the oldest process of kube-proxy started, by the node's clock."),
		healthy:   describe("kube_proxy_healthy", "1 where kube-proxy's /healthz says 200, 0 where it says something else."),
	}
}

// Describe implements prometheus.Collector.
func (n *node) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{n.ended, n.modes, n.leftovers, n.undecided, n.synced, n.queued, n.failures, n.started, n.healthy} {
		to <- one
	}
}

// Collect implements prometheus.Collector.
func (n *node) Collect(to chan<- prometheus.Metric) {
	n.mu.Lock()
	known := n.known
	n.mu.Unlock()
	for _, metric := range known {
		to <- metric
	}
}

// read takes what a reading found that ended at a moment.
func (n *node) read(reading *offrampv1.NodeFacts, ended time.Time) {
	var known []prometheus.Metric
	tell := func(what *prometheus.Desc, value float64, labels ...string) {
		known = append(known, prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...))
	}
	tell(n.ended, float64(ended.UnixMilli())/1000)
	// What is left over goes by the mode that runs, so any target does.
	assessment := readiness.Assess(reading, offrampv1.Target_TARGET_NFTABLES)
	for number, name := range offrampv1.ProxyMode_name {
		if mode := offrampv1.ProxyMode(number); mode != offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED {
			tell(n.modes, one(mode == assessment.GetRunningMode()), strings.ToLower(strings.TrimPrefix(name, "PROXY_MODE_")))
		}
	}
	for kind, count := range readiness.LeftoverKinds(assessment.GetLeftovers()) {
		tell(n.leftovers, float64(count), kind)
	}
	tell(n.undecided, one(assessment.GetLeftovers().GetUndecided()))
	kubeProxy := facts.Find(reading, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY).GetVolatile().GetKubeProxy()
	if at := kubeProxy.GetStartedAt(); at != nil {
		tell(n.started, seconds(at))
	}
	if status := kubeProxy.GetHealthStatus(); status != 0 {
		tell(n.healthy, one(status == http.StatusOK))
	}
	for _, sync := range kubeProxy.GetSyncs() {
		known = append(known, n.family(sync)...)
	}
	n.mu.Lock()
	n.known = known
	n.mu.Unlock()
}

// family tells of one family. A time that kube-proxy does not know yet is 0: never synced is older than any change.
func (n *node) family(sync *offrampv1.FamilySync) []prometheus.Metric {
	family := familyWord(sync.GetFamily())
	return []prometheus.Metric{
		prometheus.MustNewConstMetric(n.synced, prometheus.GaugeValue, seconds(sync.GetLastSync()), family),
		prometheus.MustNewConstMetric(n.queued, prometheus.GaugeValue, seconds(sync.GetLastQueued()), family),
		prometheus.MustNewConstMetric(n.failures, prometheus.CounterValue, float64(sync.GetFailures()), family),
	}
}

func familyWord(family offrampv1.AddressFamily) string {
	switch family {
	case offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4:
		return "ipv4"
	case offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6:
		return "ipv6"
	default:
		return "all"
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds is 0 for no time.
func seconds(at *timestamppb.Timestamp) float64 {
	return float64(at.GetSeconds()) + float64(at.GetNanos())/1e9
}
