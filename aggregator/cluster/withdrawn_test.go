package cluster_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func sourceOf(facts *offrampv1.ClusterFacts, kind string) *offrampv1.ClusterSource {
	for _, source := range facts.GetSources() {
		if source.GetKind() == kind {
			return source
		}
	}
	return nil
}

// A right that is taken away later is as missing as one that was never there; what was read before stays at hand, and given back it
// counts again, also where nothing has changed meanwhile and where there is nothing at all.
func TestARightThatIsWithdrawn(t *testing.T) {
	for name, tt := range map[string]struct {
		code  int
		items []any
	}{
		"forbidden":             {403, []any{corev1.Node{TypeMeta: metaOf("Node"), ObjectMeta: meta("", "a")}}},
		"forbidden, nothing":    {403, nil},
		"no longer known there": {401, []any{corev1.Node{TypeMeta: metaOf("Node"), ObjectMeta: meta("", "a")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, client := newAPI(t)
			a.lists["/api/v1/nodes"] = tt.items
			watcher := follow(t, client)
			state := func(want offrampv1.SectionState) *offrampv1.ClusterFacts {
				return await(t, watcher, func(facts *offrampv1.ClusterFacts) bool { return sourceOf(facts, "nodes").GetState() == want })
			}
			state(offrampv1.SectionState_SECTION_STATE_PRESENT)
			a.fail("/api/v1/nodes", tt.code)
			a.endWatch("/api/v1/nodes")
			facts := state(offrampv1.SectionState_SECTION_STATE_UNREADABLE)
			if got := sourceOf(facts, "nodes"); !strings.Contains(got.GetError(), "not today") || len(facts.GetNodes()) != len(tt.items) {
				t.Errorf("withdrawn: %v, nodes %v", got, facts.GetNodes())
			}
			a.fail("/api/v1/nodes", 0)
			facts = state(offrampv1.SectionState_SECTION_STATE_PRESENT)
			if got := sourceOf(facts, "nodes"); got.GetError() != "" || len(facts.GetNodes()) != len(tt.items) {
				t.Errorf("given back: %v, nodes %v", got, facts.GetNodes())
			}
		})
	}
}

// A namespace that does not exist is looked for now and then, not twice a minute for each kind.
func TestANamespaceThatIsNotThere(t *testing.T) {
	const pods = "/api/v1/namespaces/openshift-kube-proxy/pods"
	a, client := newAPI(t)
	a.fail(pods, 403)
	a.fail("/api/v1/namespaces/openshift-kube-proxy", 404)
	watcher := follow(t, client, "openshift-kube-proxy")
	await(t, watcher, func(*offrampv1.ClusterFacts) bool { return len(watcher.Unanswered()) == 0 })
	count := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.asked[pods]
	}
	first := count()
	time.Sleep(3 * time.Second) // an informer by itself asks again within two
	if later := count(); first == 0 || later != first {
		t.Errorf("it was asked %d times, and %d times three seconds later", first, later)
	}
}

// Until every kind was read, or is known not to be readable, nobody may conclude anything from what is missing.
func TestUnanswered(t *testing.T) {
	a, client := newAPI(t)
	a.fail("/api/v1/services", 403)
	a.fail("/apis/networking.k8s.io/v1/servicecidrs", 404)
	a.fail("/api/v1/nodes", 500)
	watcher := follow(t, client)
	await(t, watcher, func(*offrampv1.ClusterFacts) bool { return strings.Join(watcher.Unanswered(), " ") == "nodes" })
	a.fail("/api/v1/nodes", 0)
	await(t, watcher, func(*offrampv1.ClusterFacts) bool { return len(watcher.Unanswered()) == 0 })
	a.fail("/api/v1/nodes", 500)
	a.endWatch("/api/v1/nodes")
	if late := watcher.Unanswered(); len(late) != 0 {
		t.Errorf("what was read once is unanswered: %v", late)
	}
}

func TestObject(t *testing.T) {
	a, client := newAPI(t)
	node := corev1.Node{TypeMeta: metaOf("Node"), ObjectMeta: meta("", "a")}
	node.UID = "uid-of-a"
	a.lists["/api/v1/nodes"] = []any{node}
	watcher := follow(t, client)
	await(t, watcher, func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetNodes()) == 1 })
	if uid, ok := watcher.NodeUID("a"); !ok || uid != "uid-of-a" {
		t.Errorf("the node's UID is %q, %t", uid, ok)
	}
	if uid, ok := watcher.NodeUID("b"); ok || uid != "" {
		t.Errorf("a node that is not there has the UID %q", uid)
	}
}
