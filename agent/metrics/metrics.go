// Package metrics counts what an agent does, for Prometheus. No label has more values than this code knows of: none is a
// Service, an address or a name of somebody's.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Metrics are an agent's. Safe for use by several goroutines. docs/metrics.md lists them; a test compares.
type Metrics struct {
	registry *prometheus.Registry

	cleanups    *prometheus.CounterVec
	lastSeconds *prometheus.GaugeVec
	lastEnd     *prometheus.GaugeVec
	remaining   prometheus.Gauge
	broken      prometheus.Gauge

	scans       prometheus.Counter
	scanSeconds prometheus.Gauge
	sectionRead *prometheus.GaugeVec
	unreadable  *prometheus.GaugeVec
	node        *node
}

// New makes metrics that start at nothing. Counters of each outcome are there from the beginning, so that the first one counts.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), node: newNode()}
	m.cleanups = counters("offramp_agent_cleanups_total", "Clean-ups and restores that ended, by method and outcome.", "method", "outcome")
	m.lastSeconds = gauges("offramp_agent_cleanup_last_duration_seconds", "How long the last one took, by method.", "method")
	m.lastEnd = gauges("offramp_agent_cleanup_last_timestamp_seconds", "When the last one ended, by method.", "method")
	m.remaining = gauge("offramp_agent_cleanup_remaining_operations", "What a new plan would still do after the last clean-up.")
	m.broken = gauge("offramp_agent_cleanup_broken_probes", "Connections that the last clean-up broke.")
	m.scans = prometheus.NewCounter(prometheus.CounterOpts{Name: "offramp_agent_scans_total", Help: "Readings of the node that ended."})
	m.scanSeconds = gauge("offramp_agent_scan_last_duration_seconds", "How long the last reading of the node took.")
	m.sectionRead = gauges("offramp_agent_section_read_duration_seconds", "How long a section took when it was read last, retries included.", "section")
	m.unreadable = gauges("offramp_agent_section_unreadable", "1 where a section could not be read, or kept changing.", "section")
	m.registry.MustRegister(
		m.cleanups, m.lastSeconds, m.lastEnd, m.remaining, m.broken, m.scans, m.scanSeconds, m.sectionRead, m.unreadable, m.node,
	)
	for _, method := range []string{audit.MethodApply, audit.MethodRestore} {
		for _, outcome := range audit.Outcomes() {
			m.cleanups.WithLabelValues(method, outcome)
		}
	}
	return m
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func gauges(name, help, label string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Finished counts a clean-up, a restore or a refusal. It is an audit.Executor's Told.
func (m *Metrics) Finished(entry *audit.Entry) {
	m.cleanups.WithLabelValues(entry.Method, entry.Outcome).Inc()
	m.lastSeconds.WithLabelValues(entry.Method).Set(entry.Seconds)
	m.lastEnd.WithLabelValues(entry.Method).Set(float64(entry.Time.Unix()))
	if entry.Method == audit.MethodApply {
		m.remaining.Set(float64(entry.Remaining))
		m.broken.Set(float64(len(entry.BrokenProbes)))
	}
}

// Scanned notes a reading of the node that ended at a moment.
func (m *Metrics) Scanned(facts *offrampv1.NodeFacts, ended time.Time, took time.Duration) {
	m.scans.Inc()
	m.scanSeconds.Set(took.Seconds())
	m.node.read(facts, ended)
	for _, section := range facts.GetSections() {
		word := render.Word(section.GetKind())
		m.sectionRead.WithLabelValues(word).Set(section.GetVolatile().GetReadTook().AsDuration().Seconds())
		unreadable := 0.0
		switch section.GetStable().GetState() {
		case offrampv1.SectionState_SECTION_STATE_UNREADABLE, offrampv1.SectionState_SECTION_STATE_INCONSISTENT:
			unreadable = 1
		}
		m.unreadable.WithLabelValues(word).Set(unreadable)
	}
}

// Handler serves them, with those of the Go runtime and of the process.
func (m *Metrics) Handler() http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, own}, promhttp.HandlerOpts{})
}

// WriteFile writes them for the textfile collector of node_exporter, in one go.
func (m *Metrics) WriteFile(path string) error { return prometheus.WriteToTextfile(path, m.registry) }
