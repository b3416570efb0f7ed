package plan_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
)

// Where ip_vs cannot be loaded, kube-proxy --cleanup returns as if all were clean. Here the rest is cleaned all the same,
// and the module is not asked for.
func TestState06ModuleCannotBeLoaded(t *testing.T) {
	l := labtest.Start(t)
	g := labtest.Boot(t, l, lab.VM{Name: "state06", Kernel: "6.1", Disk: 64, Files: []lab.File{
		{Path: agent, Host: programs.Agent(), Mode: 0o755},
		{Path: "/etc/modprobe.d/no-ipvs.conf", Text: "install ip_vs /bin/sh -c 'echo asked >> /run/asked; exit 1'\n"},
	}})
	if err := g.MountDisk(t.Context(), "/var/lib/offramp"); err != nil {
		t.Fatal(err)
	}
	feed(t, g, captureFile("ipvs-then-nftables", "ipset-save.txt"), "ipset restore")
	// Chains and jumps without the matches of ip_vs.
	for _, tool := range []string{"iptables-nft", "ip6tables-nft"} {
		rules := without(captureFile("ipvs", tool+"-save.txt"), ` -m ipvs | -m set |^#`)
		feed(t, g, rules, tool+"-restore")
	}
	feed(t, g, "link add kube-ipvs0 type dummy\naddress add 10.96.0.1/32 dev kube-ipvs0\n", "ip -batch -")
	before := output(t, g, "iptables-nft-save; ip6tables-nft-save")
	if !strings.Contains(before, "KUBE-IPVS-FILTER") {
		t.Fatal("there is nothing to clean")
	}
	done, exit := applyOn(t, g, "--target", "none", "--assert-no-kube-proxy", nobody)
	if exit != 0 || len(done.GetOperations()) < 17+20+1 {
		t.Errorf("exit code %d, %d operations, refused by %v", exit, len(done.GetOperations()), done.GetRefusedBy())
	}
	left := output(t, g, "ipset list -n; ip -o link | grep kube-ipvs0; (iptables-nft-save; ip6tables-nft-save) | grep KUBE- | grep -v -e KUBE-FIREWALL -e KUBE-KUBELET-CANARY -e KUBE-IPTABLES-HINT; true")
	if left != "" {
		t.Errorf("left:\n%s", left)
	}
	if asked := output(t, g, "cat /run/asked /proc/modules 2>/dev/null | grep -e asked -e '^ip_vs ' || true"); asked != "" {
		t.Errorf("the module was asked for: %s", asked)
	}
}
