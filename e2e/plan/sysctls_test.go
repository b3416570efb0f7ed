package plan_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// sysctlsOf reads the parameters that ipvs mode sets, in a fixed order.
func sysctlsOf(t *testing.T, g *lab.Guest) string {
	t.Helper()
	return output(t, g, `cd /proc/sys/net/ipv4; for f in conf/all/arp_ignore conf/all/arp_announce vs/conntrack vs/expire_nodest_conn vs/expire_quiescent_template vs/conn_reuse_mode ip_forward conf/all/route_localnet; do echo $f=$(cat $f); done`)
}

// What ipvs mode of kube-proxy 1.37 leaves on 6.1 with strictARP, and what a reset makes of it: the kernel's own values, but
// forwarding and route_localnet, which others need.
const (
	arpSet    = "conf/all/arp_ignore=1\nconf/all/arp_announce=2\n"
	arpReset  = "conf/all/arp_ignore=0\nconf/all/arp_announce=0\n"
	ipvsSet   = "vs/conntrack=1\nvs/expire_nodest_conn=1\nvs/expire_quiescent_template=1\nvs/conn_reuse_mode=1\n"
	ipvsReset = "vs/conntrack=0\nvs/expire_nodest_conn=0\nvs/expire_quiescent_template=0\nvs/conn_reuse_mode=1\n"
	others    = "ip_forward=1\nconf/all/route_localnet=1\n"
)

// sysctlCase is a node that ipvs mode has left, what else is there, and what a reset then does.
type sysctlCase struct {
	name, before, after string
	flags               []string
	arp, ipvs           string
}

func sysctlCases() []sysctlCase {
	return []sysctlCase{
		{name: "not asked for", arp: arpSet, ipvs: ipvsSet},
		{name: "nobody wants them", flags: []string{"--reset-sysctls"}, arp: arpReset, ipvs: ipvsReset},
		{name: "a foreign virtual server", before: "ipvsadm -A -f 7 -s rr", after: "ipvsadm -D -f 7", flags: []string{"--reset-sysctls"}, arp: arpReset, ipvs: ipvsSet},
		{name: "a file of sysctl.d", before: "mkdir -p /etc/sysctl.d; echo 'net.ipv4.conf.all.arp_ignore = 1' > /etc/sysctl.d/90-mine.conf", after: "rm /etc/sysctl.d/90-mine.conf",
			flags: []string{"--reset-sysctls"}, arp: "conf/all/arp_ignore=1\nconf/all/arp_announce=0\n", ipvs: ipvsReset},
	}
}

// The parameters are reset where that was asked for and nobody else wants them, each by itself; a restore sets them again.
func TestResetSysctls(t *testing.T) {
	l := labtest.Start(t)
	g := bootAgent(t, l, "6.1", "sysctls")
	if err := lab.Restore(t.Context(), g, "ipvs-then-nftables"); err != nil {
		t.Fatal(err)
	}
	output(t, g, "modprobe ip_vs; echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet; "+setAgain)
	refusedForIPVS(t, g)
	for _, c := range sysctlCases() {
		t.Run(c.name, func(t *testing.T) {
			output(t, g, setAgain)
			// Something that goes in any case, so that there is a plan.
			feed(t, g, "create KUBE-6-IPVS-IPS hash:ip family inet6\n", "ipset restore -exist")
			if c.before != "" {
				output(t, g, c.before)
				defer output(t, g, c.after)
			}
			was := sysctlsOf(t, g)
			if was != arpSet+ipvsSet+others {
				t.Fatalf("before:\n%s", was)
			}
			flags := append([]string{"--target", "none", "--assert-no-kube-proxy", nobody}, c.flags...)
			done, exit := applyOn(t, g, flags...)
			if exit != 0 {
				t.Errorf("exit code %d, refused by %v", exit, done.GetRefusedBy())
			}
			if is := sysctlsOf(t, g); is != c.arp+c.ipvs+others {
				t.Errorf("after:\n%swant:\n%s", is, c.arp+c.ipvs+others)
			}
			restoreOn(t, g, done.GetBackupId(), "--assert-no-kube-proxy", nobody)
			if is := sysctlsOf(t, g); is != was {
				t.Errorf("restored:\n%s", is)
			}
		})
	}
}

const setAgain = `cd /proc/sys/net/ipv4; echo 1 > conf/all/arp_ignore; echo 2 > conf/all/arp_announce; echo 1 > vs/conntrack; echo 1 > vs/expire_nodest_conn; echo 1 > vs/expire_quiescent_template; echo 1 > vs/conn_reuse_mode; echo 1 > ip_forward`

// refusedForIPVS holds that a node which is to run ipvs mode keeps its parameters.
func refusedForIPVS(t *testing.T, g *lab.Guest) {
	t.Helper()
	was := sysctlsOf(t, g)
	for _, action := range []string{"plan", "apply --yes"} {
		result, err := g.Run(t.Context(), "sh", "-c", agent+" cleanup "+action+" --target ipvs --reset-sysctls")
		if err != nil || result.ExitCode != 1 || !strings.Contains(result.Stderr, "ipvs") {
			t.Errorf("%s for ipvs: %v, exit code %d: %s", action, err, result.ExitCode, result.Stderr)
		}
	}
	if is := sysctlsOf(t, g); is != was {
		t.Errorf("a refused call changed:\n%s", is)
	}
}

// nfacct objects go once no rule counts into them, stay while one of somebody else's does, and stay under iptables mode.
func TestAccountingObjects(t *testing.T) {
	l := labtest.Start(t)
	g := bootAgent(t, l, "6.1", "nfacct")
	if err := lab.Restore(t.Context(), g, "iptables"); err != nil {
		t.Fatal(err)
	}
	output(t, g, "nfacct add mine; iptables-nft -A INPUT -p tcp --dport 9 -m nfacct --nfacct-name localhost_nps_accepted_pkts; iptables-nft -A INPUT -m nfacct --nfacct-name mine")
	names := func() string { return output(t, g, "nfacct list | sed 's/.*= //' | sort | tr '\\n' ' '") }
	const all = "ct_state_invalid_dropped_pkts; localhost_nps_accepted_pkts; mine; "
	if is := names(); is != all {
		t.Fatalf("before: %s", is)
	}
	proxy, err := lab.StandIn(t.Context(), g, "iptables")
	if err != nil {
		t.Fatal(err)
	}
	if done, exit := applyOn(t, g, "--target", "iptables"); exit != 0 || len(done.GetOperations()) != 0 {
		t.Errorf("under iptables mode: exit code %d, %d operations", exit, len(done.GetOperations()))
	}
	stop(t, proxy)
	if done, exit := applyOn(t, g, "--target", "none", "--assert-no-kube-proxy", nobody); exit != 0 {
		t.Errorf("exit code %d, refused by %v", exit, done.GetRefusedBy())
	}
	if is, want := names(), "localhost_nps_accepted_pkts; mine; "; is != want {
		t.Errorf("%s is left, want %s", is, want)
	}
	output(t, g, "iptables-nft -F INPUT")
	if done, exit := applyOn(t, g, "--target", "none", "--assert-no-kube-proxy", nobody); exit != 0 || len(done.GetOperations()) != 1 {
		t.Errorf("without the rule: exit code %d, %d operations, want 1", exit, len(done.GetOperations()))
	}
	if is := names(); is != "mine; " {
		t.Errorf("%s is left", is)
	}
}
