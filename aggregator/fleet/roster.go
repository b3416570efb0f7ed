package fleet

import (
	"slices"
	"strings"
	"sync"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// roster is who belongs to the fleet, until somebody comes or goes.
type roster struct {
	// nodes are those that reported, by name. Shared: it is not changed.
	nodes []*node

	mu sync.Mutex
	// made says that rows are those with the Node objects of these facts.
	made bool
	of   *offrampv1.ClusterFacts
	rows []row
}

// row is a node that reported, or only an object of the API.
type row struct {
	name string
	// node is nil where no agent ever reported, object where the API does not tell of it.
	node   *node
	object *offrampv1.ClusterNode
	// controlPlane: it carries the control plane.
	controlPlane bool
}

// sorted returns the nodes that reported, by name.
func (s *Store) sorted() *roster {
	s.mu.RLock()
	now := s.roster
	s.mu.RUnlock()
	if now != nil {
		return now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roster == nil {
		nodes := make([]*node, 0, len(s.nodes))
		for _, n := range s.nodes {
			nodes = append(nodes, n)
		}
		slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
		s.roster = &roster{nodes: nodes}
	}
	return s.roster
}

// rows are all nodes, those that reported and those that never did, sorted by name. They are shared: they must not be changed.
func (s *Store) rows(m *moment) []row {
	r := s.sorted()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.made || r.of != m.facts {
		r.made, r.of, r.rows = true, m.facts, rowsOf(r.nodes, m.nodes)
	}
	return r.rows
}

func rowsOf(nodes []*node, objects map[string]*offrampv1.ClusterNode) []row {
	rows := make([]row, 0, max(len(nodes), len(objects)))
	for _, n := range nodes {
		rows = append(rows, newRow(n.name, n, objects[n.name]))
	}
	for name, object := range objects {
		_, reported := slices.BinarySearchFunc(nodes, name, func(n *node, name string) int { return strings.Compare(n.name, name) })
		if !reported {
			rows = append(rows, newRow(name, nil, object))
		}
	}
	if len(rows) > len(nodes) {
		slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	}
	return rows
}

func newRow(name string, n *node, object *offrampv1.ClusterNode) row {
	return row{name: name, node: n, object: object, controlPlane: controlPlane(object)}
}

// controlPlane reports whether a node carries the control plane.
func controlPlane(object *offrampv1.ClusterNode) bool {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd"} {
		if _, has := object.GetLabels()[label]; has {
			return true
		}
	}
	return false
}

// after returns the rows whose names come after one.
func after(rows []row, name string) []row {
	from, there := slices.BinarySearchFunc(rows, name, func(r row, name string) int { return strings.Compare(r.name, name) })
	if there {
		from++
	}
	return rows[from:]
}
