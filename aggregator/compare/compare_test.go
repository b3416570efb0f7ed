package compare_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/aggregator/compare"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const addresses = offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES

// world is a cluster and its nodes, changed by hand.
type world struct {
	now      time.Time
	services []*offrampv1.ClusterService
	known    bool
	lists    map[string][]string
	fetched  []string
	changed  []string
	gone     string
}

func newWorld() (*world, *compare.Comparer) {
	w := &world{now: time.Unix(1000, 0), known: true, lists: map[string][]string{}}
	return w, compare.New(compare.Config{
		Services: func() ([]*offrampv1.ClusterService, bool) { return w.services, w.known },
		Fetch: func(_ context.Context, node string, list *offrampv1.ListDigest) ([]string, error) {
			w.fetched = append(w.fetched, node)
			items, ok := w.lists[string(list.GetDigest())]
			if !ok {
				return nil, errors.New("not connected")
			}
			return items, nil
		},
		Has:     func(node string) bool { return node != w.gone },
		Changed: func(nodes []string) { w.changed = append(w.changed, nodes...) },
		Now:     func() time.Time { return w.now },
	})
}

// node is one that has addresses on kube-ipvs0.
func (w *world) node(name string, items ...string) *offrampv1.NodeFacts {
	digest := facts.ListDigest(addresses, items)
	w.lists[string(digest.GetDigest())] = items
	return &offrampv1.NodeFacts{Node: name, Sections: []*offrampv1.Section{{Stable: &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_IpvsLink{IpvsLink: &offrampv1.IpvsLinkFacts{List: digest}}}}}}
}

func service(address string) *offrampv1.ClusterService {
	return &offrampv1.ClusterService{Name: "s", ClusterIps: []string{address}}
}

func told(t *testing.T, c *compare.Comparer, node *offrampv1.NodeFacts) string {
	t.Helper()
	items, compared := c.Around(node).Unexplained[addresses]
	if !compared {
		return "not compared"
	}
	return strings.Join(items, " ")
}

func TestAStaleAddressIsToldOnceItHasBeenForAMinute(t *testing.T) {
	w, c := newWorld()
	w.services = []*offrampv1.ClusterService{service("10.96.0.1")}
	a, b := w.node("a", "10.96.0.1", "10.96.0.9"), w.node("b", "10.96.0.1", "10.96.0.9")
	for _, node := range []*offrampv1.NodeFacts{a, b} {
		if got := told(t, c, node); got != "not compared" {
			t.Errorf("before the first round: %q", got)
		}
	}
	c.Compare(t.Context())
	if got := told(t, c, a); got != "not compared" {
		t.Errorf("at once: %q", got)
	}
	w.now = w.now.Add(time.Minute)
	c.Compare(t.Context())
	if got := told(t, c, a); got != "10.96.0.9" || len(w.changed) != 2 {
		t.Errorf("after a minute: %q, changed %v", got, w.changed)
	}
	if len(w.fetched) != 1 {
		t.Errorf("one list was fetched from %v", w.fetched)
	}
	w.services = append(w.services, service("10.96.0.9"))
	c.Compare(t.Context())
	if got := told(t, c, b); got != "" || len(w.changed) != 4 {
		t.Errorf("with a Service: %q, changed %v", got, w.changed)
	}
	c.Compare(t.Context())
	if len(w.changed) != 4 {
		t.Errorf("nothing moved, and it is told: %v", w.changed)
	}
}

func TestAListThatIsExplainedIsToldAtOnce(t *testing.T) {
	w, c := newWorld()
	w.services = []*offrampv1.ClusterService{service("10.96.0.1")}
	a := w.node("a", "10.96.0.1")
	told(t, c, a)
	c.Compare(t.Context())
	if got := told(t, c, a); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestNothingIsToldOfWhatIsNotKnown(t *testing.T) {
	w, c := newWorld()
	a := w.node("a", "10.96.0.9")
	told(t, c, a)
	w.known = false
	c.Compare(t.Context())
	if got := told(t, c, a); got != "not compared" || len(w.fetched) != 0 {
		t.Errorf("without the Services: %q, fetched from %v", got, w.fetched)
	}
	w.known, w.lists = true, map[string][]string{}
	c.Compare(t.Context())
	if got := told(t, c, a); got != "not compared" {
		t.Errorf("without the list: %q", got)
	}
}

func TestANodeThatMovesOnLeavesItsOldList(t *testing.T) {
	w, c := newWorld()
	told(t, c, w.node("a", "10.96.0.9"))
	told(t, c, w.node("a", "10.96.0.8"))
	w.now = w.now.Add(time.Hour)
	c.Compare(t.Context())
	w.now = w.now.Add(time.Hour)
	c.Compare(t.Context())
	if len(w.fetched) != 1 || strings.Join(w.changed, " ") != "a" {
		t.Errorf("fetched from %v, changed %v", w.fetched, w.changed)
	}
}

func TestNodesThatAreForgottenLeaveNothing(t *testing.T) {
	w, c := newWorld()
	told(t, c, w.node("a", "10.96.0.9"))
	w.gone = "a"
	c.Compare(t.Context())
	if len(w.fetched) != 0 {
		t.Errorf("a list of nobody was fetched from %v", w.fetched)
	}
}
