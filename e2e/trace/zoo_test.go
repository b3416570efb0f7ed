package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"offramp.dev/offramp/internal/nstest"
)

// iptablesZoo is other people's state in both families: kubelet, kube-router and k3s, cri-o, the CNI plugins, Calico,
// Cilium, Docker, firewalld, ufw, fail2ban, and somebody who wishes ill.
const iptablesZoo = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:CILIUM_PRE_mangle - [0:0]
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_mangle" -j CILIUM_PRE_mangle
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
:KUBE-ROUTER-HAIRPIN - [0:0]
:KUBE-HOSTPORTS - [0:0]
:KUBE-HP-IJHALPHTORMHHPPK - [0:0]
:CRIO-HOSTPORTS-MASQ - [0:0]
:CRIO-MASQ-IJHALPHTORMHHPPK - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
:CNI-0123456789abcdef01234567 - [0:0]
:cali-PREROUTING - [0:0]
:cali-fip-dnat - [0:0]
:CILIUM_POST_nat - [0:0]
:DOCKER - [0:0]
:AWS-SNAT-CHAIN-0 - [0:0]
:KUBE-ROUTER-SERVICES - [0:0]
:$(reboot) - [0:0]
-A PREROUTING -m comment --comment "kube hostport portals" -m addrtype --dst-type LOCAL -j KUBE-HOSTPORTS
-A KUBE-HOSTPORTS -p tcp -m comment --comment "k8s_web_default hostport 8080" -m tcp --dport 8080 -j KUBE-HP-IJHALPHTORMHHPPK
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8081 -j CNI-DN-0123456789abcdef01234
-A POSTROUTING -j CNI-HOSTPORT-MASQ
-A POSTROUTING -j KUBE-ROUTER-HAIRPIN
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A cali-PREROUTING -j cali-fip-dnat
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
-A PREROUTING -j $(reboot)
COMMIT
*filter
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
:KUBE-ROUTER-FORWARD - [0:0]
:KUBE-ROUTER-OUTPUT - [0:0]
:KUBE-NWPLCY-DEFAULT - [0:0]
:KUBE-NWPLCY-XM7TQGIIXKOMQW2K - [0:0]
:KUBE-POD-FW-7M5QLYWQZG2XOKWS - [0:0]
:cali-INPUT - [0:0]
:CILIUM_INPUT - [0:0]
:DOCKER-USER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:INPUT_direct - [0:0]
:IN_public_allow - [0:0]
:ufw-before-input - [0:0]
:f2b-sshd - [0:0]
:kube-services - [0:0]
:NOT-KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
-A FORWARD -m comment --comment "kube-router netpol - TEMCG2JMHZYE7H7T" -j KUBE-ROUTER-FORWARD
-A KUBE-ROUTER-FORWARD -j KUBE-POD-FW-7M5QLYWQZG2XOKWS
-A KUBE-POD-FW-7M5QLYWQZG2XOKWS -j KUBE-NWPLCY-XM7TQGIIXKOMQW2K
-A INPUT -m comment --comment "kubernetes service portals" -j NOT-KUBE-SERVICES
-A INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-A INPUT -p tcp -m tcp --dport 22 -j f2b-sshd
COMMIT
`

// legacyZoo is kubelet's and kube-router's state where they chose the other backend.
const legacyZoo = `*nat
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-DROP - [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -j KUBE-ROUTER-INPUT
COMMIT
`

// setsZoo is other people's sets, some with names that somebody may have chosen to do harm.
const setsZoo = `create KUBE-SRC-XM7TQGIIXKOMQW2K hash:ip
create KUBE-DST-XM7TQGIIXKOMQW2K hash:ip
create inet6:KUBE-DST-XM7TQGIIXKOMQW2K hash:ip family inet6
create kube-router-svip-prt hash:ip,port
create kube-router-ipvs-services hash:ip,port
create cali40all-ipam-pools hash:net
create cali60all-ipam-pools hash:net family inet6
create cilium_node_set_v4 hash:ip
create blocklist hash:net
create kube-cluster-ip hash:ip,port
create XKUBE-CLUSTER-IP hash:ip,port
create $(reboot) hash:ip
create ;reboot;# hash:ip
create ../../../etc/passwd hash:ip
create %s%s%n hash:ip
add blocklist 192.0.2.0/24
add KUBE-SRC-XM7TQGIIXKOMQW2K 10.244.0.7
add kube-router-ipvs-services 10.96.0.1,tcp:443
`

const tablesZoo = `table inet firewalld { chain filter_INPUT { type filter hook input priority 10; ct state established accept; }; }
table inet kube-proxy { chain services { tcp dport 80 accept; }; }
table ip calico { chain c { }; }
table inet cni_hostport { chain hostports { }; }
table ip docker-bridges { map m { type ipv4_addr : verdict; }; }
table ip kube-proxy-not { chain services { }; }
`

// artefact is one thing of kube-proxy's.
type artefact struct {
	name, add, remove string
	// plain and asserted are the exit codes of verify --target none without and with --assert-no-kube-proxy.
	plain, asserted int
}

// Exit codes of verify, as DESIGN.md has them.
const (
	clean     = 0
	leftovers = 3
	unknown   = 4
)

// artefacts has one of each class. Without a running mode it cannot be told whether that uses them; who asserts that none
// runs has leftovers. What is not provably kube-proxy's is unknown either way.
func artefacts() []artefact {
	return []artefact{
		{"a set", "ipset create KUBE-CLUSTER-IP hash:ip,port family inet; ipset add KUBE-CLUSTER-IP 10.96.0.98,tcp:80", "ipset destroy KUBE-CLUSTER-IP", unknown, leftovers},
		{"an IPv6 set", "ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6", "ipset destroy KUBE-6-CLUSTER-IP", unknown, leftovers},
		{"a set of another type", "ipset create KUBE-CLUSTER-IP hash:ip", "ipset destroy KUBE-CLUSTER-IP", unknown, unknown},
		{"a chain of ipvs mode", "iptables-nft -t nat -N KUBE-NODE-PORT", "iptables-nft -t nat -X KUBE-NODE-PORT", unknown, leftovers},
		{"a Service's chain", "ip6tables-nft -t nat -N KUBE-SVC-IJHALPHTORMHHPPK", "ip6tables-nft -t nat -X KUBE-SVC-IJHALPHTORMHHPPK", unknown, leftovers},
		{"a chain that is too long", "iptables-nft -t nat -N KUBE-SVC-IJHALPHTORMHHPPKK", "iptables-nft -t nat -X KUBE-SVC-IJHALPHTORMHHPPKK", unknown, unknown},
		{"a table", "nft add table ip kube-proxy", "nft delete table ip kube-proxy", unknown, leftovers},
		{"an IPv6 table", "nft add table ip6 kube-proxy", "nft delete table ip6 kube-proxy", unknown, leftovers},
		{"a chain of iptables-legacy", "iptables-legacy -N KUBE-IPVS-FILTER", "iptables-legacy -X KUBE-IPVS-FILTER", unknown, leftovers},
		{"a chain with its jump", `iptables-nft -N KUBE-IPVS-FILTER
			iptables-nft -A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER`,
			`iptables-nft -D INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
			iptables-nft -X KUBE-IPVS-FILTER`, unknown, leftovers},
	}
}

// virtualArtefacts need a kernel with ip_vs and dummy links.
func virtualArtefacts() []artefact {
	return []artefact{
		// Sets that name nothing do not tell whose the masquerading virtual server on an address of the node is.
		{"an empty set", "ipset create KUBE-CLUSTER-IP hash:ip,port family inet", "ipset destroy KUBE-CLUSTER-IP", unknown, unknown},
		{"the link", "ip link add kube-ipvs0 type dummy", "ip link del kube-ipvs0", unknown, leftovers},
		{"a virtual server", `ipset create KUBE-CLUSTER-IP hash:ip,port family inet; ipset add KUBE-CLUSTER-IP 10.96.0.99,tcp:80
			ipvsadm -A -t 10.96.0.99:80 -s rr`, "ipvsadm -D -t 10.96.0.99:80; ipset destroy KUBE-CLUSTER-IP", unknown, leftovers},
		{"kube-proxy's probe", "ipvsadm -A -t 198.51.100.0:20000 -s rr", "ipvsadm -D -t 198.51.100.0:20000", unknown, leftovers},
	}
}

// Only other people's state is there, much of it called KUBE-: a node that is clean. Then one thing of kube-proxy's.
func TestZoo(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore", "ipset", "nft", "ip")
	nstest.NeedKernel(t, "nf_tables", "ip_set", "ip_tables", "ip6_tables", "nft_compat", "veth")
	kubelet(t)
	m := here{}
	buildZoo(t, m)
	// A link of kube-proxy's name that is no dummy is not kube-proxy's.
	script(t, m, "ip link add kube-ipvs0 type veth peer name zoo0")
	visit(t, m, artefacts(), toolTraces(false))
}

// kubelet starts a process of that name, by which the agent knows that it sees the node's processes: the namespace of a
// test has no kernel threads.
func kubelet(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func zooInGuest(t *testing.T, g guest) {
	script(t, g, `modprobe ip_vs; modprobe dummy
		ipvsadm -A -t 192.0.2.20:80 -s wrr; ipvsadm -a -t 192.0.2.20:80 -r 192.0.2.21 -g
		ipvsadm -A -f 7 -s rr; ipvsadm -A -t 10.96.0.1:443 -s rr; ipvsadm -a -t 10.96.0.1:443 -r 192.0.2.22:6443 -m
		ip link add kube-dummy-if type dummy; ip address add 10.96.0.1/32 dev kube-dummy-if; ip link add nodelocaldns type dummy`)
	buildZoo(t, g)
	visit(t, g, append(artefacts(), virtualArtefacts()...), toolTraces(true))
}

// buildZoo makes other people's state by the native tools.
func buildZoo(t *testing.T, m machine) {
	t.Helper()
	for _, feed := range []struct{ text, tool string }{
		{iptablesZoo, "iptables-nft-restore"}, {iptablesZoo, "ip6tables-nft-restore"},
		{legacyZoo, "iptables-legacy-restore"}, {legacyZoo, "ip6tables-legacy-restore"},
		{setsZoo + "create \xff\xfe\x80 hash:ip\n", "ipset restore"}, {tablesZoo, "nft -f -"},
	} {
		result := m.run(t, feed.text, "sh", "-c", feed.tool)
		if result.ExitCode != 0 {
			t.Fatalf("%s: exit code %d: %s", feed.tool, result.ExitCode, result.Stderr)
		}
	}
}

// visit holds that the zoo alone is clean, that each artefact is noticed, and that nothing of the zoo was touched.
func visit(t *testing.T, m machine, all []artefact, commands []string) {
	t.Helper()
	before := settled(t, m, commands)
	judges(t, m, "the zoo alone", clean, clean)
	for _, one := range all {
		script(t, m, one.add)
		judges(t, m, one.name, one.plain, one.asserted)
		script(t, m, one.remove)
		judges(t, m, "the zoo without "+one.name, clean, clean)
	}
	same(t, "the visit", withoutHandles(before), withoutHandles(settled(t, m, commands)))
}

// withoutHandles is without the list that names handles: those grow with every chain that was added and removed.
func withoutHandles(seen traces) traces {
	delete(seen, "nft -a list ruleset")
	return seen
}

// judges holds the exit codes of verify --target none, without and with the assertion that no kube-proxy runs.
func judges(t *testing.T, m machine, what string, plain, asserted int) {
	t.Helper()
	for _, way := range []struct {
		flags []string
		want  int
	}{{nil, plain}, {[]string{"--assert-no-kube-proxy", "a test says so"}, asserted}} {
		result := m.run(t, "", append([]string{m.agent(), "verify", "--target", "none"}, way.flags...)...)
		if result.ExitCode != way.want {
			t.Errorf("%s: verify %v ends with %d, want %d:\n%s%s", what, way.flags, result.ExitCode, way.want, result.Stdout, result.Stderr)
		}
	}
}
