package failover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/programs"
)

// node is a network namespace with an agent.
type node struct {
	*testing.T

	name        string
	space       *space
	state, root string
	agent       *process
	truth       truth
}

// truth is how many sets a node has had, and when.
type truth struct {
	mu  sync.Mutex
	was []moment
}

// moment begins a time in which a node has so many sets: any number from least to most, while something changes them.
type moment struct {
	at          time.Time
	least, most uint64
}

func (tr *truth) from(at time.Time, least, most uint64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.was = append(tr.was, moment{at, least, most})
}

// possible reports whether the node had so many sets at any time from one moment to another.
func (tr *truth) possible(sets uint64, from, to time.Time) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i, m := range tr.was {
		ended := i+1 < len(tr.was) && tr.was[i+1].at.Before(from)
		if !ended && !m.at.After(to) && m.least <= sets && sets <= m.most {
			return true
		}
	}
	return false
}

func (s *stage) addNode(number int) *node {
	s.Helper()
	n := &node{T: s.T, name: fmt.Sprintf("node-%02d", number), root: s.TempDir()}
	n.space = addSpace(s.T, 100+number, fmt.Sprintf("10.99.1.%d", number))
	n.state = filepath.Join(s.TempDir(), "state")
	// A host root without boot files that name what would go.
	if err := os.MkdirAll(filepath.Join(n.root, "etc"), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.root, "etc", "os-release"), []byte("ID=test\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	n.truth.from(time.Now(), 0, 0)
	n.agent = start(s.T, n.space, "the agent of "+n.name, programs.Agent(), "run", "--node", n.name, "--aggregator", replicasName+":8443",
		"--insecure-plaintext", "--scan-interval", "2s", "--cleanup", "apply", "--state-dir", n.state, "--host-root", n.root,
		"--assert-no-kube-proxy", "a test", "--no-connect")
	return n
}

// sets are those that the kernel has, by the native tool.
func (n *node) sets() []string {
	n.Helper()
	out, err := native(n.space, "ipset", "list", "-n")
	if err != nil {
		n.Errorf("the sets of %s: %v: %s", n.name, err, out)
	}
	return strings.Fields(out)
}

func (n *node) leftovers() (left int) {
	n.Helper()
	for _, name := range n.sets() {
		if strings.HasPrefix(name, "KUBE-") {
			left++
		}
	}
	return left
}

// resize gives the node so many sets of somebody's, which no clean-up touches.
func (n *node) resize(from, to int) {
	n.Helper()
	n.truth.from(time.Now(), uint64(min(from, to)), uint64(max(from, to)))
	for i := from; i < to; i++ {
		mustRun(n.T, n.space, "ipset", "create", fmt.Sprint("mine-", i), "hash:ip")
	}
	for i := to; i < from; i++ {
		mustRun(n.T, n.space, "ipset", "destroy", fmt.Sprint("mine-", i))
	}
	n.truth.from(time.Now(), uint64(to), uint64(to))
}

// left is what ipvs mode leaves here.
var left = [][]string{{"KUBE-CLUSTER-IP", "hash:ip,port"}, {"KUBE-LOOP-BACK", "hash:ip,port,ip"}, {"KUBE-EXTERNAL-IP", "hash:ip,port"}}

func (n *node) dirty() {
	n.Helper()
	n.truth.from(time.Now(), 0, uint64(len(left)))
	for _, set := range left {
		mustRun(n.T, n.space, "ipset", "-exist", "create", set[0], set[1])
	}
	n.truth.from(time.Now(), uint64(len(left)), uint64(len(left)))
}

// runs counts the clean-ups that the node's journal has of an order.
func (n *node) runs(id string) (count int) {
	n.Helper()
	files, _ := filepath.Glob(filepath.Join(n.state, "journal", "*.jsonl"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			n.Error(err)
		}
		count += strings.Count(string(text), `"order":"`+id+`"`)
	}
	return count
}
