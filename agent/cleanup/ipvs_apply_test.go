package cleanup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ipvsNode makes a node with the addresses of the captures, the zoo and virtual servers of others, and returns what the native
// tools print of it.
func ipvsNode(t *testing.T) string {
	t.Helper()
	nstest.NeedTool(t, "ip", "ipvsadm")
	nstest.NeedKernel(t, "ip_vs", "ip_vs_rr", "ip_vs_lc", "ip_vs_wlc", "dummy", "nf_conntrack")
	run(t, "", "ip", "link", "add", "eth0", "type", "dummy")
	run(t, "", "ip", "link", "set", "eth0", "up")
	run(t, "", "ip", "addr", "add", "10.0.2.15/24", "dev", "eth0")
	for _, address := range []string{"fec0::15/64", "fec0::5054:ff:fe12:3456/64"} {
		run(t, "", "ip", "addr", "add", address, "dev", "eth0", "nodad")
	}
	run(t, "", "ip", "route", "add", "default", "dev", "eth0")
	run(t, "", "ip", "-6", "route", "add", "default", "dev", "eth0")
	zoo(t)
	run(t, foreignServers, "ipvsadm", "-R")
	return look(t)
}

// What keepalived, kube-vip and others have in the same table.
const foreignServers = `-A -t 192.0.2.241:6443 -s rr
-a -t 192.0.2.241:6443 -r 192.0.2.242:6443 -g -w 1
-A -u 203.0.113.99:53 -s wlc
-A -t [2001:db8::99]:80 -s rr
-a -t [2001:db8::99]:80 -r [2001:db8::98]:80 -m -w 1
-A -f 7 -s rr
`

// addIPVS puts virtual servers and kube-ipvs0 of a capture there.
func addIPVS(t *testing.T, capture string) {
	t.Helper()
	var batch strings.Builder
	batch.WriteString("link add kube-ipvs0 type dummy\n")
	link := ""
	for line := range strings.Lines(fileOf(t, capture, "ip-addr.txt")) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, " ") {
			link = strings.TrimSuffix(fields[1], ":")
		}
		if link == "kube-ipvs0" && strings.HasPrefix(fields[0], "inet") {
			batch.WriteString("addr add " + fields[1] + " dev kube-ipvs0\n")
		}
	}
	run(t, batch.String(), "ip", "-batch", "-")
	run(t, fileOf(t, capture, "ipvsadm-save.txt"), "ipvsadm", "-R")
}

// A whole node of ipvs mode, in a guest: all of kube-proxy's goes, in its order, and all comes back.
func TestApplyAndRestoreAWholeIPVSNode(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	before := ipvsNode(t)
	kubeProxy(t, "ipvs")
	addIPVS(t, "ipvs")
	dirty := look(t)
	n := newNode(t)
	plan := n.plan()
	t.Logf("%d operations; %d guards", len(plan.GetOperations()), len(plan.GetGuards()))
	stages := map[offrampv1.Stage]int{}
	for _, operation := range plan.GetOperations() {
		stages[operation.GetStage()]++
	}
	// By hand from the capture: 85 virtual servers, 68 addresses of which one each is IPv4's and IPv6's half, 34 sets.
	if stages[offrampv1.Stage_STAGE_VIRTUAL_SERVERS] != 85 || stages[offrampv1.Stage_STAGE_LINK] != 1 || stages[offrampv1.Stage_STAGE_IPSETS] != 34 {
		t.Errorf("stages %v, want 85 virtual servers, 1 link, 34 sets", stages)
	}
	if stages[offrampv1.Stage_STAGE_SOURCE] != 68 {
		t.Errorf("%d sources change, want 68", stages[offrampv1.Stage_STAGE_SOURCE])
	}
	result, err := n.applyPlan(plan)
	if err != nil {
		t.Fatal(err)
	}
	mustClean(t, result)
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after the clean-up (+):\n%s", diff)
	}
	if again := n.plan(); len(again.GetOperations()) != 0 {
		t.Errorf("a second run would do %d operations", len(again.GetOperations()))
	}
	restored, err := n.restore(noProxy, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range restored.Items {
		if item.Outcome != "restored" {
			t.Errorf("%s: %s: %s", item.What, item.Outcome, item.Why)
		}
	}
	if diff := cmp.Diff(dirty, look(t)); diff != "" {
		t.Errorf("before the clean-up (-), after the restore (+):\n%s", diff)
	}
}
