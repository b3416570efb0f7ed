package monitoring

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// kubeProxy are the metrics of kube-proxy's own that rules use, as pkg/proxy/metrics/metrics.go of Kubernetes 1.37 names them, and
// the one that every program of Kubernetes has.
func kubeProxy() []string {
	return []string{
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		"process_start_time_seconds",
	}
}

// Served are the metrics that the two programs serve, with the names of their labels: what the tests of aggregator/metrics and
// agent/metrics hold the real handlers to, byte for byte.
func Served() (map[string][]string, error) {
	served := map[string][]string{}
	for _, name := range kubeProxy() {
		served[name] = []string{"ip_family", "instance"}
	}
	for _, program := range []string{"aggregator", "agent"} {
		text, err := os.ReadFile(fmt.Sprintf("../../%s/metrics/testdata/exposition.txt", program))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			if line[0] != '#' {
				name, rest, _ := strings.Cut(strings.Fields(string(line))[0], "{")
				served[name] = append(served[name], labelNames(rest)...)
			}
		}
	}
	return served, nil
}

// labelNames of `phase="on-ipvs",pool="blue"}`.
func labelNames(text string) []string {
	var names []string
	for _, pair := range strings.Split(strings.TrimSuffix(text, "}"), ",") {
		if name, _, is := strings.Cut(pair, "="); is {
			names = append(names, name)
		}
	}
	return names
}

// Check parses an expression and says what it uses that nobody serves: a metric, or a label of one.
func Check(expr string, served map[string][]string, recorded []string) []string {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			problems = append(problems, checkSelector(selector, served, recorded)...)
		}
		return nil
	})
	return problems
}

func checkSelector(selector *parser.VectorSelector, served map[string][]string, recorded []string) []string {
	var problems []string
	matched := 0
	for _, matcher := range selector.LabelMatchers {
		if matcher.Name != model.MetricNameLabel {
			continue
		}
		for name := range served {
			if matcher.Matches(name) {
				matched++
			}
		}
		if slices.Contains(recorded, matcher.Value) {
			matched++
		}
	}
	if matched == 0 {
		problems = append(problems, fmt.Sprintf("nobody serves %s", selector))
	}
	for _, matcher := range selector.LabelMatchers {
		if known := served[selector.Name]; matcher.Name != model.MetricNameLabel && !slices.Contains(known, matcher.Name) {
			problems = append(problems, fmt.Sprintf("%s has no label %s", selector.Name, matcher.Name))
		}
	}
	return problems
}
