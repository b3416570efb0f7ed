package cleanup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/nstest"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The states that operators run into, by their numbers in the list of field reports: what a clean-up does about each.

// enterZoo makes a namespace with the zoo. It returns what the native tools print of it.
func enterZoo(t *testing.T) (string, bool) {
	t.Helper()
	if !nstest.Enter(t) {
		return "", false
	}
	needNetfilter(t)
	zoo(t)
	return look(t), true
}

// as makes the node say of kube-proxy what it said when a capture was made, and be cleaned for that mode.
func (n *node) as(capture string) *node {
	n.proxy = capture
	n.options.Target = map[string]offrampv1.Target{"ipvs": ipvs, "iptables": iptables, "nftables": nftables}[strings.TrimSpace(fileOf(n.t, capture, "proxyMode.txt"))]
	return n
}

// mustLeave applies, and holds that nothing was refused, that everything went, and what the native tools then print.
func (n *node) mustLeave(want string) {
	n.t.Helper()
	mustClean(n.t, n.apply())
	if diff := cmp.Diff(want, look(n.t)); diff != "" {
		n.t.Errorf("want (-), after the clean-up (+):\n%.4000s", diff)
	}
	if again := n.plan(); len(again.GetOperations()) != 0 {
		n.t.Errorf("a second run would do %d operations", len(again.GetOperations()))
	}
}

// mustRefuse applies, and holds that this guard refused and that nothing changed. It returns the guard's evidence.
func (n *node) mustRefuse(id string) string {
	n.t.Helper()
	dirty := look(n.t)
	result := n.apply()
	var evidence []string
	for _, guard := range result.GetRefusedBy() {
		if guard.GetId() == id {
			evidence = guard.GetEvidence()
		}
	}
	if evidence == nil {
		n.t.Errorf("refused by %v, want %s", result.GetRefusedBy(), id)
	}
	if diff := cmp.Diff(dirty, look(n.t)); diff != "" {
		n.t.Errorf("a refused clean-up changed something:\n%s", diff)
	}
	return strings.Join(evidence, "; ")
}

// firstOf is the place of the first operation that mentions a text, -1 for none.
func firstOf(plan *offrampv1.Plan, text string) int {
	return slices.IndexFunc(plan.GetOperations(), func(o *offrampv1.Operation) bool { return strings.Contains(o.String(), text) })
}

// kube-proxy --cleanup trips over the set of health-check ports: it goes after the chain that matches it, and that after its
// jump, in both backends and families.
func TestState04HealthCheckSet(t *testing.T) {
	before, inside := enterZoo(t)
	if !inside {
		return
	}
	for family, set := range map[string]string{"iptables": "KUBE-HEALTH-CHECK-NODE-PORT", "ip6tables": "KUBE-6-HEALTH-CHECK-NODE-PORT"} {
		run(t, "", "ipset", "create", set, "bitmap:port", "range", "0-65535")
		for _, backend := range []string{"-nft", "-legacy"} {
			run(t, "", family+backend, "-N", "KUBE-NODE-PORT")
			run(t, "", family+backend, "-I", "INPUT", "-m", "comment", "--comment", "kubernetes health check rules", "-j", "KUBE-NODE-PORT")
			run(t, "", family+backend, "-A", "KUBE-NODE-PORT", "-m", "comment", "--comment", "Kubernetes health check node port",
				"-m", "set", "--match-set", set, "dst", "-j", "ACCEPT")
		}
		fails(t, "ipset", "destroy", set)
		fails(t, family+"-nft", "-X", "KUBE-NODE-PORT")
	}
	n := newNode(t)
	plan := n.plan()
	jump, chain, set := firstOf(plan, "delete_rule"), firstOf(plan, "delete_chain"), firstOf(plan, "destroy_set")
	if len(plan.GetOperations()) != 10 || jump < 0 || chain < jump || set < chain {
		t.Errorf("%d operations, want 4 jumps, 4 chains, 2 sets; first jump %d, chain %d, set %d", len(plan.GetOperations()), jump, chain, set)
	}
	n.mustLeave(before)
}

// fails runs a native tool that has to fail, so that the state is the one that people report.
func fails(t *testing.T, args ...string) {
	t.Helper()
	if output, err := tryTool(t, args...); err == nil {
		t.Fatalf("%s: %s, want that it fails", strings.Join(args, " "), output)
	}
}

// kube-proxy never destroys its IPv6 sets. Two have names that are cut.
func TestState07IPv6Sets(t *testing.T) {
	before, inside := enterZoo(t)
	if !inside {
		return
	}
	var six strings.Builder
	count := 0
	for line := range strings.Lines(fileOf(t, "ipvs-then-nftables", "ipset-save.txt")) {
		if strings.HasPrefix(line, "create KUBE-6-") {
			count++
		}
		six.WriteString(regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(line, ""))
	}
	run(t, six.String(), "ipset", "restore")
	n := newNode(t).as("ipvs-then-nftables")
	run(t, "table ip kube-proxy { chain services { }; }\ntable ip6 kube-proxy { chain services { }; }\n", "nft", "-f", "-")
	plan := n.plan()
	for _, cut := range []string{"KUBE-6-LOAD-BALANCER-SOURCE-CID", "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS"} {
		if firstOf(plan, `"`+cut+`"`) < 0 {
			t.Errorf("the plan does not destroy %s", cut)
		}
	}
	if len(plan.GetOperations()) != count || count != 17 {
		t.Errorf("%d operations for %d sets, want 17", len(plan.GetOperations()), count)
	}
	mustClean(t, n.apply())
	run(t, "delete table ip kube-proxy\ndelete table ip6 kube-proxy\n", "nft", "-f", "-")
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before (-), after (+):\n%s", diff)
	}
}

// Kubelet's chains stay; kube-proxy's canaries go where no mode of it is to run, and stay under iptables mode.
func TestState16KubeletsChains(t *testing.T) {
	before, inside := enterZoo(t)
	if !inside {
		return
	}
	for _, backend := range backends() {
		for _, table := range []string{"mangle", "nat", "filter"} {
			run(t, "", backend.tool, "-t", table, "-N", "KUBE-PROXY-CANARY")
		}
	}
	n := newNode(t)
	under := newNode(t).as("iptables")
	if plan := under.plan(); len(plan.GetOperations()) != 0 {
		t.Errorf("under iptables mode %v would go", plan.GetOperations())
	}
	if plan := n.plan(); len(plan.GetOperations()) != 12 {
		t.Errorf("%d operations, want 3 canaries in 2 backends and 2 families", len(plan.GetOperations()))
	}
	n.mustLeave(before)
}

// kube-router's chains and sets begin as kube-proxy's do, and stand beside what kube-proxy really left.
func TestState17KubeRouter(t *testing.T) {
	if _, inside := enterZoo(t); !inside {
		return
	}
	run(t, kubeRouterSets, "ipset", "restore")
	for _, backend := range backends() {
		set := map[bool]string{false: "kube-router-svip-prt", true: "inet6:kube-router-svip-prt"}[strings.HasPrefix(backend.tool, "ip6")]
		run(t, strings.ReplaceAll(kubeRouterRules, "SET", set), backend.tool+"-restore", "--noflush")
	}
	before := look(t)
	kubeProxy(t, "ipvs-then-iptables")
	newNode(t).mustLeave(before)
	for _, name := range []string{"KUBE-ROUTER-SERVICES", "KUBE-POD-FW-7M5QLYWQZG2XOKWS", "kube-router-svip-prt", "inet6:kube-router-svip-prt"} {
		if !strings.Contains(before, name) {
			t.Errorf("%s was never there", name)
		}
	}
}

const kubeRouterRules = `*nat
:KUBE-ROUTER-HAIRPIN - [0:0]
-A POSTROUTING -m set --match-set SET dst,dst -m comment --comment "hairpin" -j KUBE-ROUTER-HAIRPIN
COMMIT
*filter
:KUBE-ROUTER-FORWARD - [0:0]
:KUBE-ROUTER-OUTPUT - [0:0]
:KUBE-ROUTER-SERVICES - [0:0]
:KUBE-NWPLCY-DEFAULT - [0:0]
:KUBE-POD-FW-7M5QLYWQZG2XOKWS - [0:0]
-A INPUT -m comment --comment "handle traffic to IPVS service IPs in custom chain" -m set --match-set SET dst,dst -j KUBE-ROUTER-SERVICES
-A FORWARD -m comment --comment "kube-router netpol - TEMCG2JMHZYE7H7T" -j KUBE-ROUTER-FORWARD
-A OUTPUT -m comment --comment "kube-router netpol - VEAAIY32XVBHCSCY" -j KUBE-ROUTER-OUTPUT
-A KUBE-ROUTER-FORWARD -m comment --comment "rule to jump traffic" -j KUBE-POD-FW-7M5QLYWQZG2XOKWS
-A KUBE-POD-FW-7M5QLYWQZG2XOKWS -j KUBE-NWPLCY-DEFAULT
-A KUBE-NWPLCY-DEFAULT -m comment --comment "rule to mark traffic matching a network policy" -j MARK --set-xmark 0x10000/0x10000
COMMIT
`

const kubeRouterSets = `create KUBE-DST-XM7TQGIIXKOMQW2K hash:ip family inet hashsize 1024 maxelem 65536
create inet6:KUBE-SRC-XM7TQGIIXKOMQW2K hash:ip family inet6 hashsize 1024 maxelem 65536
create kube-router-svip-prt hash:ip,port family inet hashsize 1024 maxelem 65536
create inet6:kube-router-svip-prt hash:ip,port family inet6 hashsize 1024 maxelem 65536
create kube-router-local-ips hash:ip family inet hashsize 1024 maxelem 65536
add kube-router-local-ips 192.0.2.7
`

// After an image changed its iptables, the other backend still sends to what is dead. Which one a running iptables mode uses
// cannot be told for sure, so it refuses; with no kube-proxy both are cleaned.
func TestState23BothBackends(t *testing.T) {
	before, inside := enterZoo(t)
	if !inside {
		return
	}
	kubeProxyIn(t, "ipvs-then-iptables", "nft")
	kubeProxyIn(t, "iptables", "legacy")
	if evidence := newNode(t).as("ipvs-then-iptables").mustRefuse(cleanup.GuardMixedBackends); !strings.Contains(evidence, "KUBE-SERVICES") {
		t.Errorf("it names %q, not KUBE-SERVICES", evidence)
	}
	newNode(t).mustLeave(before)
}

// A file of boot-time rules that names a set would fail at the next boot, or bring the set back. It is named, never edited.
func TestState31BootTimeRules(t *testing.T) {
	before, inside := enterDirty(t)
	if !inside {
		return
	}
	n := newNode(t)
	path := filepath.Join(n.root, "etc", "iptables", "rules.v6")
	const rules = "*filter\n:mine - [0:0]\n-A INPUT -m set --match-set KUBE-6-CLUSTER-IP dst,dst -j mine\nCOMMIT\n"
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if evidence := n.mustRefuse(cleanup.GuardBootFile); !strings.Contains(evidence, "/etc/iptables/rules.v6") || !strings.Contains(evidence, "KUBE-6-CLUSTER-IP") {
		t.Errorf("it names %q, want the file and the set", evidence)
	}
	n.options.Overrides = map[string]string{cleanup.GuardBootFile: "the file goes with the next image"}
	n.mustLeave(before)
	if content, err := os.ReadFile(path); err != nil || string(content) != rules {
		t.Errorf("the file is now %q (%v)", content, err)
	}
}

// A table with 100,000 elements is planned without listing them, goes, and comes back whole.
func TestState40HugeTable(t *testing.T) {
	before, inside := enterZoo(t)
	if !inside {
		return
	}
	const elements = 100000
	var table strings.Builder
	table.WriteString("table ip kube-proxy {\n chain external { }\n map service-ips {\n type ipv4_addr . inet_proto . inet_service : verdict\n elements = {\n")
	for i := range elements {
		fmt.Fprintf(&table, "10.%d.%d.%d . tcp . 80 : goto external,\n", 96+i>>16, i>>8&0xff, i&0xff)
	}
	table.WriteString("}\n }\n}\n")
	without := timed(func() { newNode(t).plan() })
	run(t, table.String(), "nft", "-f", "-")
	listed := func() int {
		return strings.Count(run(t, "", "nft", "list", "map", "ip", "kube-proxy", "service-ips"), "goto external")
	}
	listing := timed(func() {
		if got := listed(); got != elements {
			t.Fatalf("%d elements, want %d", got, elements)
		}
	})
	n := newNode(t)
	var plan *offrampv1.Plan
	took := timed(func() { plan = n.plan() })
	if len(plan.GetOperations()) != 1 {
		t.Errorf("%d operations, want one table", len(plan.GetOperations()))
	}
	// The machine may be busy: what counts is that planning takes no longer than without the table by what listing takes.
	if took > 2*(without+listing) {
		t.Errorf("planning took %s, %s without the table; listing takes nft %s", took, without, listing)
	}
	n.mustLeave(before)
	restored, err := n.restore(noProxy, "")
	if err != nil || restored.Failed() {
		t.Fatalf("restore: %v, %v", err, restored)
	}
	if got := listed(); got != elements {
		t.Errorf("%d elements came back, want %d", got, elements)
	}
	t.Logf("planned in %s, %s without the table; listing takes nft %s", took, without, listing)
}

func timed(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// A host port's chain that jumps to KUBE-MARK-MASQ would lose its mark: that chain is neither flushed nor deleted.
func TestState46HostPortUsesTheMark(t *testing.T) {
	if _, inside := enterZoo(t); !inside {
		return
	}
	kubeProxyIn(t, "iptables", "nft")
	run(t, "*nat\n:CNI-DN-0123456789abcdef01234 - [0:0]\n-A CNI-DN-0123456789abcdef01234 -s 10.244.1.0/24 -p tcp -m tcp --dport 8080 -j KUBE-MARK-MASQ\nCOMMIT\n",
		"iptables-nft-restore", "--noflush")
	mark := func() string { return run(t, "", "iptables-nft", "-t", "nat", "-S", "KUBE-MARK-MASQ") }
	before := mark()
	if evidence := newNode(t).mustRefuse(cleanup.GuardForeignJump); !strings.Contains(evidence, "CNI-DN-0123456789abcdef01234") {
		t.Errorf("it names %q, not the chain that jumps", evidence)
	}
	if after := mark(); after != before || !strings.Contains(after, "0x4000") {
		t.Errorf("KUBE-MARK-MASQ was %q and is %q", before, after)
	}
}

// Somebody holds the lock of legacy tables for 30 s and more: the wait is bounded, and says what it waited for. When the
// lock is free within the wait, it goes on.
func TestState47LockHeld(t *testing.T) {
	before, inside := enterDirty(t)
	if !inside {
		return
	}
	n := newNode(t)
	n.config.LockWait = 0 // the default, 30 s
	file, err := os.Create(n.config.XtablesLock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	hold := func(how int) {
		if err := unix.Flock(int(file.Fd()), how); err != nil {
			t.Error(err)
		}
	}
	hold(unix.LOCK_EX)
	began := time.Now()
	result := n.apply()
	if took := time.Since(began); took < 30*time.Second || took > 60*time.Second {
		t.Errorf("it waited for %s, want 30 s", took)
	}
	if len(result.GetRefusedBy()) != 1 || result.GetRefusedBy()[0].GetId() != cleanup.GuardLockHeld ||
		!strings.Contains(result.GetRefusedBy()[0].GetEvidence()[0], n.config.XtablesLock+" was held for 30s") {
		t.Errorf("refused by %v", result.GetRefusedBy())
	}
	time.AfterFunc(3*time.Second, func() { hold(unix.LOCK_UN) })
	n.mustLeave(before)
}
