package fleet

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Cluster is what else is known of the nodes. Its methods are called often and must be quick.
type Cluster interface {
	// Facts is what the Kubernetes API says; nil without access to it. What it returns is not changed by anybody.
	Facts() *offrampv1.ClusterFacts
	// Acceptances are the findings that people accepted; those whose time is over may be among them.
	Acceptances() []*offrampv1.Acceptance
}

// Alone is a fleet without a Kubernetes API.
type Alone struct{}

// Facts says that nothing is known.
func (Alone) Facts() *offrampv1.ClusterFacts { return nil }

// Acceptances says that nothing is accepted.
func (Alone) Acceptances() []*offrampv1.Acceptance { return nil }

// nodeIndex keeps the Node objects by name, made anew when the facts are others.
type nodeIndex struct {
	mu     sync.Mutex
	of     *offrampv1.ClusterFacts
	byName map[string]*offrampv1.ClusterNode
}

func (i *nodeIndex) get(facts *offrampv1.ClusterFacts) map[string]*offrampv1.ClusterNode {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of != facts || i.byName == nil {
		i.of, i.byName = facts, make(map[string]*offrampv1.ClusterNode, len(facts.GetNodes()))
		for _, node := range facts.GetNodes() {
			i.byName[node.GetName()] = node
		}
	}
	return i.byName
}

// moment is the fleet's surroundings at one moment: every node of an answer is judged by the same. It is for one goroutine.
type moment struct {
	now    time.Time
	target offrampv1.Target
	facts  *offrampv1.ClusterFacts
	nodes  map[string]*offrampv1.ClusterNode
	// accepted are the acceptances in force, with their selectors.
	accepted []acceptance
	// first is the first node of each pool that switched.
	first map[string]first
	// made are assessments that are not as the nodes' own; see derive.
	made map[derived]*offrampv1.Assessment
}

type acceptance struct {
	selector labels.Selector
	word     *offrampv1.Acceptance
}

func (s *Store) moment(target offrampv1.Target) *moment {
	s.asked[target].Store(true)
	m := &moment{now: s.config.Now(), target: target, facts: s.config.Cluster.Facts()}
	m.nodes = s.index.get(m.facts)
	for _, word := range s.config.Cluster.Acceptances() {
		selector, err := labels.Parse(word.GetSelector())
		if err == nil && word.GetUntil().AsTime().After(m.now) {
			m.accepted = append(m.accepted, acceptance{selector, word})
		}
	}
	m.first = s.firsts.get(m, s.firstOfPools)
	return m
}

// Expected is how many nodes there are: those that were heard of, or those that the API tells of, where that is more.
func (s *Store) Expected() int {
	s.mu.RLock()
	heard := len(s.nodes)
	s.mu.RUnlock()
	return max(heard, len(s.config.Cluster.Facts().GetNodes()))
}

// acceptedOn returns, by finding, what is accepted on a node, of which the object may be nil, and which acceptances those are.
func (m *moment) acceptedOn(object *offrampv1.ClusterNode) (found map[string]*offrampv1.Acceptance, which string) {
	for i, one := range m.accepted {
		if one.selector.Empty() || one.selector.Matches(labels.Set(object.GetLabels())) {
			if found == nil {
				found = map[string]*offrampv1.Acceptance{}
			}
			found[one.word.GetFindingId()] = one.word
			which += strconv.Itoa(i) + " "
		}
	}
	return found, which
}

// notApplicable reports whether a node has no kube-proxy of Linux.
func notApplicable(object *offrampv1.ClusterNode) bool {
	system := object.GetOperatingSystem()
	return object.GetVirtual() || (system != "" && system != "linux")
}

// derived names an assessment as it is at one moment: what a node said, and what the moment makes of it.
type derived struct {
	of    *offrampv1.Assessment
	phase offrampv1.Phase
	// accepted are the acceptances that hold for the node.
	accepted string
}

// derive makes, once for all nodes with the same, what the moment makes of an assessment.
func (m *moment) derive(key derived, make func() *offrampv1.Assessment) *offrampv1.Assessment {
	made := m.made[key]
	if made == nil {
		made = make()
		if m.made == nil {
			m.made = map[derived]*offrampv1.Assessment{}
		}
		m.made[key] = made
	}
	return made
}
