package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The labels of Nodes.
const (
	labelMode  = "offramp.dev/proxy-mode"
	labelPhase = "offramp.dev/phase"
	labelReady = "offramp.dev/ready-for"
	// againAfter is when a label that was written and is not seen is written again.
	againAfter = time.Minute
)

// labels are what a Node should be labelled with: a nil value is a label that should not be there, a missing key one of which nothing
// is known, so that it stays as it is.
type labels map[string]*string

// labelsOf goes by what is known of a node. Of a node that is silent, or was never heard of, nothing is.
func labelsOf(summary *offrampv1.NodeSummary, target offrampv1.Target) labels {
	assessment, want := summary.GetAssessment(), labels{}
	switch assessment.GetPhase() {
	case offrampv1.Phase_PHASE_UNSPECIFIED, offrampv1.Phase_PHASE_UNKNOWN, offrampv1.Phase_PHASE_SILENT:
	default:
		want.set(labelPhase, render.Word(assessment.GetPhase()))
	}
	if summary.GetLastSeen() == nil || assessment.GetPhase() == offrampv1.Phase_PHASE_SILENT {
		return want
	}
	switch mode := assessment.GetRunningMode(); mode {
	case offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN:
	default:
		want.set(labelMode, render.Word(mode))
	}
	switch assessment.GetReady() {
	case offrampv1.Verdict_VERDICT_READY:
		want.set(labelReady, render.Word(target))
	case offrampv1.Verdict_VERDICT_BLOCKED:
		want[labelReady] = nil
	default:
	}
	return want
}

func (l labels) set(key, value string) { l[key] = &value }

// missing are those that a Node does not have so.
func (l labels) missing(has map[string]string) labels {
	change := labels{}
	for key, want := range l {
		value, there := has[key]
		if want == nil && there || want != nil && (!there || value != *want) {
			change[key] = want
		}
	}
	return change
}

// patch is a merge patch of exactly these labels, of that Node and not of another of its name.
func (l labels) patch(uid types.UID) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": l}})
}

// written is what was written last on a Node, or was to be, until its object shows it.
type written struct {
	patch string
	at    time.Time
}

// label writes the labels of some of the nodes, those that are not as they should be; the rest waits for the next round.
func (p *Publisher) label(ctx context.Context, want map[string]labels, now time.Time) {
	for name, last := range p.labelled {
		if now.Sub(last.at) >= againAfter {
			delete(p.labelled, name)
		}
	}
	left := p.config.pace.labels
	for _, node := range p.config.Cluster.Facts().GetNodes() {
		change := want[node.GetName()].missing(node.GetLabels())
		uid, there := p.config.Cluster.NodeUID(node.GetName())
		if len(change) == 0 {
			delete(p.labelled, node.GetName())
		}
		if len(change) == 0 || !there {
			continue
		}
		patch, err := change.patch(uid)
		if err != nil || p.labelled[node.GetName()].patch == string(patch) {
			continue
		}
		if left--; left < 0 || !p.labelNode(ctx, node.GetName(), patch, now) {
			return
		}
	}
}

// labelNode reports whether it is worth going on with the next node in this round.
func (p *Publisher) labelNode(ctx context.Context, name string, patch []byte, now time.Time) bool {
	err := p.lease.do(ctx, func(ctx context.Context) error {
		_, err := p.config.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		return err //nolint:wrapcheck // looked at below
	})
	if errors.Is(err, errNotHeld) {
		return false
	}
	// A patch that was refused, too: a policy may be about this one node, and the next round begins with another.
	p.labelled[name] = written{string(patch), now}
	switch {
	case err == nil:
		p.complaints.about("node labels", "label", nil)
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The node is gone, or another one of that name: its object tells, soon.
		return true
	default:
		p.complaints.about("node labels", "label", fmt.Errorf("label node %s: %w", name, err))
		return false
	}
}
