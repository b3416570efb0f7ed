package publish

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestLabelsOf(t *testing.T) {
	const mode, phase, readyFor = `"offramp.dev/proxy-mode":"`, `"offramp.dev/phase":"`, `"offramp.dev/ready-for":`
	const ipvs, unknownMode = v1.ProxyMode_PROXY_MODE_IPVS, v1.ProxyMode_PROXY_MODE_UNKNOWN
	for name, tt := range map[string]struct {
		phase  v1.Phase
		mode   v1.ProxyMode
		ready  v1.Verdict
		unseen bool
		want   string
	}{
		"on ipvs, ready":           {v1.Phase_PHASE_ON_IPVS, ipvs, v1.Verdict_VERDICT_READY, false, phase + `on-ipvs",` + mode + `ipvs",` + readyFor + `"nftables"`},
		"blocked":                  {v1.Phase_PHASE_ON_IPVS, ipvs, v1.Verdict_VERDICT_BLOCKED, false, phase + `on-ipvs",` + mode + `ipvs",` + readyFor + `null`},
		"could not be told":        {v1.Phase_PHASE_UNKNOWN, unknownMode, v1.Verdict_VERDICT_UNKNOWN, false, ``},
		"the verdict could not":    {v1.Phase_PHASE_DONE, v1.ProxyMode_PROXY_MODE_NONE, v1.Verdict_VERDICT_UNKNOWN, false, phase + `done",` + mode + `none"`},
		"silent":                   {v1.Phase_PHASE_SILENT, ipvs, v1.Verdict_VERDICT_UNKNOWN, false, ``},
		"never heard of":           {v1.Phase_PHASE_UNKNOWN, unknownMode, v1.Verdict_VERDICT_UNKNOWN, true, ``},
		"Windows, never heard of ": {v1.Phase_PHASE_NOT_APPLICABLE, unknownMode, v1.Verdict_VERDICT_UNKNOWN, true, phase + `not-applicable"`},
	} {
		summary := &v1.NodeSummary{Node: "a", Assessment: &v1.Assessment{Phase: tt.phase, RunningMode: tt.mode, Ready: tt.ready}}
		if !tt.unseen {
			summary.LastSeen = timestamppb.New(noon())
		}
		patch, err := labelsOf(summary, nftables).patch("uid")
		if want := `{"metadata":{"labels":{` + tt.want + `},"uid":"uid"}}`; err != nil || string(patch) != want {
			t.Errorf("%s:\n%s, want\n%s (%v)", name, patch, want, err)
		}
	}
}

func TestMissingLabels(t *testing.T) {
	want := labels{labelReady: nil}
	want.set(labelPhase, "done")
	for name, tt := range map[string]struct {
		has  map[string]string
		want string
	}{
		"nothing there":    {nil, `{"offramp.dev/phase":"done"}`},
		"as it should be":  {map[string]string{labelPhase: "done", labelMode: "kept", "other": "kept"}, `{}`},
		"another phase":    {map[string]string{labelPhase: "soaking"}, `{"offramp.dev/phase":"done"}`},
		"no longer ready":  {map[string]string{labelPhase: "done", labelReady: "nftables"}, `{"offramp.dev/ready-for":null}`},
		"ready, but empty": {map[string]string{labelPhase: "done", labelReady: ""}, `{"offramp.dev/ready-for":null}`},
	} {
		patch, _ := want.missing(tt.has).patch("")
		if whole := `{"metadata":{"labels":` + tt.want + `,"uid":""}}`; string(patch) != whole {
			t.Errorf("%s: %s, want %s", name, patch, whole)
		}
	}
}

// Nodes are labelled once, each by a patch of the labels that are not as they should be and of that Node alone.
func TestNodesAreLabelled(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", func(c *Config) { c.Events, c.FleetObject = false, false })
	p.round()
	p.round()
	var patches []string
	for _, action := range w.client.Actions() {
		if patch, ok := action.(k8stesting.PatchAction); ok && patch.GetPatchType() == types.MergePatchType {
			patches = append(patches, patch.GetName()+" "+string(patch.GetPatch()))
		}
	}
	want := []string{
		`a {"metadata":{"labels":{"offramp.dev/phase":"on-ipvs","offramp.dev/proxy-mode":"nftables"},"uid":"uid-of-a"}}`,
		`b {"metadata":{"labels":{"offramp.dev/phase":"on-ipvs","offramp.dev/proxy-mode":"nftables"},"uid":"uid-of-b"}}`,
	}
	if len(patches) != 2 || patches[0] != want[0] || patches[1] != want[1] {
		t.Errorf("patches %q, want %q", patches, want)
	}
	// The object does not show them: after a while they are written again.
	w.advance(againAfter)
	p.round()
	if got := w.writes()["patch nodes"]; got != 4 {
		t.Errorf("%d patches", got)
	}
}

func TestLabelsWithoutTheRight(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", func(c *Config) { c.Events, c.FleetObject = false, false })
	tries := 0
	w.client.PrependReactor("patch", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
		tries++
		patch, _ := action.(k8stesting.PatchAction)
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, patch.GetName(), nil)
	})
	p.round()
	p.round()
	if got := lines(w, "does not work"); tries != 2 || got != 1 {
		t.Errorf("%d tries, %d complaints: %s", tries, got, w.log)
	}
}

// A Node of which the API server refuses the labels, as an admission policy may, keeps none of the others from theirs.
func TestANodeThatMayNotBeLabelled(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", func(c *Config) { c.Events, c.FleetObject = false, false })
	tries := map[string]int{}
	w.client.PrependReactor("patch", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patch, _ := action.(k8stesting.PatchAction)
		tries[patch.GetName()]++
		return patch.GetName() == "a", nil, apierrors.NewBadRequest("denied by a policy")
	})
	p.round()
	p.round()
	p.round()
	if tries["a"] != 1 || tries["b"] != 1 {
		t.Errorf("tries %v", tries)
	}
	w.advance(againAfter)
	p.round()
	if tries["a"] != 2 {
		t.Errorf("it is not tried again: %v", tries)
	}
}

// However many nodes are to be labelled, a round is short.
func TestLabelsAFewAtATime(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", func(c *Config) {
		c.pace = defaultPace()
		c.pace.labels = 1
	})
	p.round()
	if got := w.writes()["patch nodes"]; got != 1 {
		t.Errorf("%d patches in the first round", got)
	}
	p.round()
	if got := w.writes()["patch nodes"]; got != 2 {
		t.Errorf("%d patches after the second round", got)
	}
}
