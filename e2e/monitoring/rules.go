// Package monitoring holds the tests of deploy/monitoring: alert rules, dashboard and the PrometheusRule. It is a module of its own,
// so that the product depends on nothing of the Prometheus server.
package monitoring

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// Folder is deploy/monitoring, seen from this package.
const Folder = "../../deploy/monitoring/"

// Rules is a file of alert rules, as far as the tests look into it.
type Rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []Rule `json:"rules"`
	} `json:"groups"`
}

// Rule is an alert, or a series that is recorded.
type Rule struct {
	Alert       string            `json:"alert"`
	Record      string            `json:"record"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// All are the rules of all groups.
func (r *Rules) All() []Rule {
	var all []Rule
	for _, group := range r.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// ReadRules reads alerts.yaml.
func ReadRules() (*Rules, error) {
	text, err := os.ReadFile(Folder + "alerts.yaml")
	if err != nil {
		return nil, err
	}
	rules := &Rules{}
	return rules, yaml.Unmarshal(text, rules)
}

// PrometheusRule is the rules of alerts.yaml as an object for Prometheus Operator.
func PrometheusRule() ([]byte, error) {
	text, err := os.ReadFile(Folder + "alerts.yaml")
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := yaml.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	object, err := yaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"metadata": map[string]any{"name": "offramp", "namespace": "offramp", "labels": map[string]string{"app.kubernetes.io/part-of": "offramp"}},
		"spec":     spec,
	})
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "# Written by a test from alerts.yaml: go -C e2e/monitoring test -run TestPrometheusRule -update .\n%s", object), nil
}
