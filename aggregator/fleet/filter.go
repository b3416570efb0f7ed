package fleet

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Filter says which nodes an answer is about; its zero value takes every node.
type Filter struct {
	// Selector goes by the labels of Node objects; nil takes every node, also those without an object.
	Selector labels.Selector
	// Phases that a node may be in; empty takes all.
	Phases []offrampv1.Phase
	// WithLeftovers takes nodes with leftovers alone.
	WithLeftovers bool
	// FindingID takes nodes with that finding alone, unless it is empty.
	FindingID string
	// RunningMode takes nodes of that mode alone, unless it is unspecified.
	RunningMode offrampv1.ProxyMode
}

// selects goes by what needs no assessment.
func (f Filter) selects(object *offrampv1.ClusterNode) bool {
	return f.Selector == nil || f.Selector.Empty() || f.Selector.Matches(labels.Set(object.GetLabels()))
}

// takes goes by the assessment.
func (f Filter) takes(assessment *offrampv1.Assessment) bool {
	if len(f.Phases) > 0 && !slices.Contains(f.Phases, assessment.GetPhase()) {
		return false
	}
	if f.RunningMode != offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED && f.RunningMode != assessment.GetRunningMode() {
		return false
	}
	if f.WithLeftovers && !readiness.AnyLeft(assessment.GetLeftovers()) {
		return false
	}
	return f.FindingID == "" || slices.ContainsFunc(assessment.GetFindings(), func(finding *offrampv1.Finding) bool {
		return finding.GetId() == f.FindingID
	})
}
