package plan_test

import (
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// excludedServer stands in kube-proxy's sets of the capture.
const excludedServer = "192.0.2.20"

// A virtual server in ipvs.excludeCIDRs is somebody else's, also once the configuration that says so is gone and no agent
// runs any more: the agent that ran has left it in the state folder. Without that memory it is kube-proxy's, as its sets say.
func TestExcludedServersAreRemembered(t *testing.T) {
	l := labtest.Start(t)
	g := bootAgent(t, l, "6.1", "excluded")
	if err := lab.Restore(t.Context(), g, "ipvs-then-iptables"); err != nil {
		t.Fatal(err)
	}
	// Whoever has a virtual server of its own there has its address too.
	output(t, g, "ip address del 192.0.2.20/32 dev kube-ipvs0; ip address add 192.0.2.20/32 dev lo")
	if servers := output(t, g, "ipvsadm -Sn"); !strings.Contains(servers, "-A -t "+excludedServer+":80") {
		t.Fatalf("not there: %s", servers)
	}
	if goes(nonePlan(t, g)) != 1 {
		t.Error("without a memory, the server is not kube-proxy's as its sets say")
	}
	isSeen(t, g)
	if goes(nonePlan(t, g)) != 0 {
		t.Error("a virtual server in ipvs.excludeCIDRs would go")
	}
	kept := output(t, g, "ipvsadm -Sn | grep 192.0.2.20:80")
	if done, exit := applyOn(t, g, "--target", "none", "--assert-no-kube-proxy", nobody); exit != 0 {
		t.Errorf("exit code %d, refused by %v", exit, done.GetRefusedBy())
	}
	if left := output(t, g, "ipvsadm -Sn"); left != kept {
		t.Errorf("left is\n%swant\n%s", left, kept)
	}
	output(t, g, "echo garbled > /var/lib/offramp/history.json")
	result, err := g.Run(t.Context(), agent, "cleanup", "plan", "--target", "none", "--assert-no-kube-proxy", nobody)
	if err != nil || result.ExitCode != 1 || !strings.Contains(result.Stderr, "history.json") {
		t.Errorf("with a garbled memory: %v, %+v", err, result)
	}
}

// isSeen has an agent see a configuration with excludeCIDRs, and ends both.
func isSeen(t *testing.T, g *lab.Guest) {
	t.Helper()
	const config = "/var/lib/kube-proxy/config.conf"
	const text = "kind: KubeProxyConfiguration\nmode: ipvs\nipvs: {excludeCIDRs: [192.0.2.20/30]}\n"
	if err := g.Put(t.Context(), config, strings.NewReader(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// Of another name than the commands below take from the host, as in a pod.
	run, err := g.Start(t.Context(), lab.Command{Argv: []string{agent, "run", "--aggregator", "127.0.0.1:1", "--insecure-plaintext", "--node", "worker-1.example"}})
	if err != nil {
		t.Fatal(err)
	}
	output(t, g, "for i in $(seq 60); do grep -qs 192.0.2.20/30 /var/lib/offramp/history.json && exit 0; sleep 1; done; exit 1")
	if _, err := run.Stop(20 * time.Second); err != nil {
		t.Error(err)
	}
	output(t, g, "rm "+config)
}

func nonePlan(t *testing.T, g *lab.Guest) *offrampv1.Plan {
	t.Helper()
	plan, _ := planOn(t, g, "none", "--assert-no-kube-proxy", nobody)
	return plan
}

// goes counts the operations that delete the excluded server.
func goes(plan *offrampv1.Plan) int {
	count := 0
	for _, operation := range plan.GetOperations() {
		if operation.GetDeleteVirtualServer().GetAddress() == excludedServer {
			count++
		}
	}
	return count
}
