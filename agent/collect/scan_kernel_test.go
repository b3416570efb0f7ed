package collect

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// trace is what looking could change.
func trace(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, path := range []string{
		"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names", "/proc/net/ip_vs", "/proc/net/fib_trie", "/proc/net/if_inet6",
	} {
		content, err := os.ReadFile(path)
		state[path] = string(content)
		if err != nil {
			state[path] = err.Error()
		}
	}
	modules, _ := os.ReadFile("/proc/modules")
	var names []string
	for line := range strings.Lines(string(modules)) {
		names = append(names, strings.Fields(line)[0])
	}
	state["modules"] = strings.Join(names, " ")
	return state
}

// Promise 1: after a scan the node is what it was before.
func TestScanLeavesNoTrace(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	before := trace(t)
	scanner := New(Config{Host: DefaultHost()})
	first, second := scanner.Scan(t.Context()), scanner.Scan(t.Context())
	if diff := cmp.Diff(before, trace(t)); diff != "" {
		t.Errorf("looking changed the node (-before +after):\n%s", diff)
	}
	generation := func(node *offrampv1.NodeFacts) uint32 {
		return facts.Find(node, kindNFT).GetVolatile().GetNftables().GetGeneration()
	}
	if generation(first) != generation(second) {
		t.Errorf("the generation went from %d to %d", generation(first), generation(second))
	}
}

// Whatever a scan says of a node with the sets of a capture, an aggregator takes it.
func TestScansPassTheBorder(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	for _, name := range captures.Names() {
		restoreSets(t, readCapture(t, name, "ipset-save.txt"))
		host := hostOf(t, map[string]string{
			"proc/net/ip_vs":            readCapture(t, name, "proc-net-ip_vs.txt"),
			"proc/net/netlink":          "sk Eth Pid\n0000 12 0\n",
			"proc/sys/kernel/osrelease": "6.1.0-57-cloud-amd64\n",
			"proc/sys/net/x":            "",
			"sys/module/ip_set/x":       "",
		})
		node := New(Config{Host: host, History: true}).Scan(t.Context())
		for _, section := range node.GetSections() {
			encoded, _, err := facts.Encode(section.GetStable())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := facts.Decode(section.GetKind(), encoded); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := facts.CheckVolatile(section.GetKind(), section.GetVolatile()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		checkNamedList(t, host, node)
		run(t, "", "ipset", "destroy")
	}
}

// checkNamedList asks for the list of virtual servers by the digest that the scan gave.
func checkNamedList(t *testing.T, host Host, node *offrampv1.NodeFacts) {
	t.Helper()
	digest := facts.Find(node, kindIPVS).GetStable().GetIpvs().GetList()
	items, err := New(Config{Host: host}).List(t.Context(), digest)
	if err != nil || uint64(len(items)) != digest.GetCount() {
		t.Errorf("%d items, %v; want %d", len(items), err, digest.GetCount())
	}
}
