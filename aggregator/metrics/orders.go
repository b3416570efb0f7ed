package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"offramp.dev/offramp/aggregator/audit"
)

// noAnswer is the outcome of an order that ended here without the node's answer; the node may have done it all the same.
const noAnswer = "no-answer"

// Orders counts the orders that were passed on. Use NewOrders. Safe for use by several goroutines.
type Orders struct{ counts *prometheus.CounterVec }

// NewOrders makes counts that start at 0 for every method and outcome, so that the first one is seen as an increase.
func NewOrders() *Orders {
	o := &Orders{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "offramp_aggregator_orders_total", Help: "Orders to nodes that ended, by what was ordered and how the node answered.",
	}, []string{"method", "outcome"})}
	for _, method := range methods() {
		for _, outcome := range append(outcomes(), noAnswer) {
			o.counts.WithLabelValues(method, outcome)
		}
	}
	return o
}

func methods() []string { return []string{"plan", "apply", "restore"} }

func outcomes() []string { return []string{"done", "refused", "failed", "interrupted"} }

// Written counts a line of the audit log where it tells of an order. A caller who asks again makes a second line.
func (o *Orders) Written(record audit.Record) {
	if record.Event != "order" {
		return
	}
	method := strings.ToLower(record.Method[strings.LastIndex(record.Method, "/")+1:])
	outcome := record.Outcome
	if !slices.Contains(methods(), method) {
		return
	}
	if !slices.Contains(outcomes(), outcome) {
		outcome = noAnswer
	}
	o.counts.WithLabelValues(method, outcome).Inc()
}
