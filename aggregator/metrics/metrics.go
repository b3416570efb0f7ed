// Package metrics tells Prometheus what an aggregator knows. Everything is asked for when it is scraped. No label has more values
// than this code knows of, but for the pools, of which an answer has 100 at most: none is a node, a Service or an address.
// docs/metrics.md lists them; a test compares.
package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"offramp.dev/offramp/aggregator/fleet"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Sources are where the figures come from. Each may be nil, and its metrics are then left out.
type Sources struct {
	// Readiness sums up the fleet for the target nftables, Figures what that leaves out.
	Readiness func() *offrampv1.GetReadinessResponse
	Figures   func() fleet.Figures
	// ServerVersion is the version of the API server, "v1.37.2"; empty while it is not known.
	ServerVersion func() string
	// ServerExpiry is when the certificate shown expires, AuthorityExpiry when the authority that the aggregator made does; zero
	// when there is none.
	ServerExpiry, AuthorityExpiry func() time.Time
	// Refusals is how many calls were refused since the start.
	Refusals func() int64
	// Orders counts what was passed on to nodes.
	Orders *Orders
	// Version is the aggregator's own.
	Version string
}

// emit hands over the value of a gauge, with the values of its labels.
type emit func(what *prometheus.Desc, value float64, labels ...string)

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(what *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	if c.sources.Readiness != nil {
		c.fleet(c.sources.Readiness(), gauge)
	}
	if c.sources.Figures != nil {
		c.figures(c.sources.Figures(), gauge)
	}
	if c.sources.ServerVersion != nil {
		c.deadline(c.sources.ServerVersion(), gauge)
	}
	c.expiries(gauge)
	if c.sources.Version != "" {
		gauge(c.build, 1, c.sources.Version)
	}
	if c.sources.Refusals != nil {
		to <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(c.sources.Refusals()))
	}
}

func (c *collector) expiries(gauge emit) {
	for name, when := range map[string]func() time.Time{"server": c.sources.ServerExpiry, "authority": c.sources.AuthorityExpiry} {
		if when == nil {
			continue
		}
		if at := when(); !at.IsZero() {
			gauge(c.expiry, float64(at.Unix()), name)
		}
	}
}

func word(name, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
}

// scrapesAtOnce bounds the scrapes that are answered at a time: each sums up the fleet, nobody is asked who he is, and the probes that
// decide whether the aggregator lives come to the same port.
const scrapesAtOnce = 8

// Handler serves the figures, with those of the Go runtime and of the process.
func Handler(sources Sources) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(sources), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if sources.Orders != nil {
		registry.MustRegister(sources.Orders.counts)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce})
}
