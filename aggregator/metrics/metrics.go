// Package metrics tells Prometheus what an aggregator knows. Everything is asked for when it is scraped; no label has more values
// than this code knows of: none is a node, a Service or an address.
package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Sources are where the figures come from. Each may be nil, and its metrics are then left out.
type Sources struct {
	// Readiness sums up the fleet for the target nftables.
	Readiness func() *offrampv1.GetReadinessResponse
	// ServerExpiry is when the certificate shown expires, AuthorityExpiry when the authority that the aggregator made does; zero
	// when there is none.
	ServerExpiry, AuthorityExpiry func() time.Time
	// Refusals is how many calls were refused since the start.
	Refusals func() int64
}

// collector asks the sources at each scrape.
type collector struct {
	sources Sources

	nodes, verdicts, leftovers, findings, expiry, refused *prometheus.Desc
}

func newCollector(sources Sources) *collector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("offramp_aggregator_"+name, help, labels, nil)
	}
	return &collector{
		sources:   sources,
		nodes:     describe("nodes", "Nodes, by phase.", "phase"),
		verdicts:  describe("nodes_ready", "Nodes, by whether they could go to nftables mode.", "verdict"),
		leftovers: describe("nodes_with_leftovers", "Nodes with something left of another mode."),
		findings:  describe("nodes_with_finding", "Nodes with a finding for the target nftables, by its id.", "finding", "severity"),
		expiry:    describe("certificate_expiry_timestamp_seconds", "When a certificate expires: of the server, or of the authority that the aggregator made.", "certificate"),
		refused:   describe("refused_calls_total", "Calls that were refused for who made them."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{c.nodes, c.verdicts, c.leftovers, c.findings, c.expiry, c.refused} {
		to <- one
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(what *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	if c.sources.Readiness != nil {
		c.fleet(c.sources.Readiness(), gauge)
	}
	for name, when := range map[string]func() time.Time{"server": c.sources.ServerExpiry, "authority": c.sources.AuthorityExpiry} {
		if when == nil {
			continue
		}
		if at := when(); !at.IsZero() {
			gauge(c.expiry, float64(at.Unix()), name)
		}
	}
	if c.sources.Refusals != nil {
		to <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(c.sources.Refusals()))
	}
}

// fleet gives every phase, also those that no node is in, so that an alert on one of them has something to look at.
func (c *collector) fleet(sum *offrampv1.GetReadinessResponse, gauge func(*prometheus.Desc, float64, ...string)) {
	phases := map[offrampv1.Phase]uint64{}
	for _, count := range sum.GetPhases() {
		phases[count.GetPhase()] = count.GetNodes()
	}
	for number := range offrampv1.Phase_name {
		if phase := offrampv1.Phase(number); phase != offrampv1.Phase_PHASE_UNSPECIFIED {
			gauge(c.nodes, float64(phases[phase]), word(phase.String(), "PHASE_"))
		}
	}
	gauge(c.verdicts, float64(sum.GetReady()), "ready")
	gauge(c.verdicts, float64(sum.GetBlocked()), "blocked")
	gauge(c.verdicts, float64(sum.GetUnknown()), "unknown")
	gauge(c.leftovers, float64(sum.GetWithLeftovers()))
	for _, finding := range sum.GetFindings() {
		gauge(c.findings, float64(finding.GetNodes()), finding.GetId(), word(finding.GetSeverity().String(), "SEVERITY_"))
	}
}

func word(name, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
}

// Handler serves the figures, with those of the Go runtime and of the process.
func Handler(sources Sources) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(sources), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
