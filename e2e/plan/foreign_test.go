package plan_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
)

// foreignRules go into both backends and families: kube-router and k3s, cri-o, CNI portmap, Calico, Cilium, Docker,
// firewalld, NodeLocal DNS, other versions' names, and names that are nearly kube-proxy's. Kubelet's are in the captures.
const foreignRules = `*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -d ADDRESS -p udp -m udp --dport 53 -m comment --comment "NodeLocal DNS Cache: skip conntrack" -j NOTRACK
COMMIT
*mangle
:CILIUM_PRE_mangle - [0:0]
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_mangle" -j CILIUM_PRE_mangle
COMMIT
*nat
:KUBE-MARK-DROP - [0:0]
:KUBE-HOSTPORTS - [0:0]
:KUBE-HP-IJHALPHTORMHHPPK - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
:cali-PREROUTING - [0:0]
:DOCKER - [0:0]
:KUBE-SVC-abc - [0:0]
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A PREROUTING -m comment --comment "kube hostport portals" -m addrtype --dst-type LOCAL -j KUBE-HOSTPORTS
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -s ADDRESS -j MASQUERADE
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"net\"" -m multiport --dports 8081 -j CNI-DN-0123456789abcdef01234
-A KUBE-HOSTPORTS -p tcp -m comment --comment "k8s_web_default hostport 8080" -m tcp --dport 8080 -j KUBE-HP-IJHALPHTORMHHPPK
-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000
COMMIT
*filter
:KUBE-ROUTER-INPUT - [0:0]
:KUBE-NWPLCY-XM7TQGIIXKOMQW2K - [0:0]
:KUBE-POD-FW-7M5QLYWQZG2XOKWS - [0:0]
:cali-INPUT - [0:0]
:DOCKER-USER - [0:0]
:IN_public_allow - [0:0]
:NOT-KUBE-SERVICES - [0:0]
-A INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
-A INPUT -m comment --comment "kubernetes service portals" -j NOT-KUBE-SERVICES
-A INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-A FORWARD -j DOCKER-USER
-A KUBE-POD-FW-7M5QLYWQZG2XOKWS -j KUBE-NWPLCY-XM7TQGIIXKOMQW2K
COMMIT
`

const foreignSets = `create KUBE-SRC-XM7TQGIIXKOMQW2K hash:ip family inet hashsize 1024 maxelem 65536
add KUBE-SRC-XM7TQGIIXKOMQW2K 10.244.0.7
create inet6:KUBE-DST-XM7TQGIIXKOMQW2K hash:ip family inet6 hashsize 1024 maxelem 65536
create cali40all-ipam-pools hash:net family inet hashsize 1024 maxelem 65536
create KUBE-CLUSTER-IPS hash:ip,port family inet hashsize 1024 maxelem 65536
create kube-cluster-ip hash:ip,port family inet hashsize 1024 maxelem 65536
create ;reboot;# hash:ip family inet hashsize 1024 maxelem 65536
`

const foreignTables = `table inet firewalld { chain filter_INPUT { type filter hook input priority 10; ct state established accept; }; }
table inet kube-proxy { chain services { tcp dport 80 accept; }; }
table ip kube-proxy-not { chain services { }; }
table inet cni_hostport { chain hostports { }; }
`

// foreignServers are keepalived's, a service by firewall mark, and kube-router's on its own link.
const foreignServers = `-A -t 192.0.2.241:6443 -s rr
-a -t 192.0.2.241:6443 -r 192.0.2.242:6443 -g -w 1
-A -u 203.0.113.99:53 -s rr
-A -t 169.254.25.1:443 -s rr
-a -t 169.254.25.1:443 -r 192.0.2.22:6443 -m -w 1
-A -f 7 -s rr
`

const foreignLinks = `link add kube-dummy-if type dummy
address add 169.254.25.1/32 dev kube-dummy-if
link add nodelocaldns type dummy
address add 169.254.20.10/32 dev nodelocaldns
link add kube-ipvs1 type dummy
`

// addForeign puts other people's state beside what is there.
func addForeign(t *testing.T, g *lab.Guest) {
	t.Helper()
	for _, tool := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		address := map[bool]string{false: "192.0.2.7/32", true: "2001:db8::7/128"}[strings.HasPrefix(tool, "ip6")]
		feed(t, g, strings.ReplaceAll(foreignRules, "ADDRESS", address), tool+"-restore --noflush")
	}
	feed(t, g, foreignSets, "ipset restore")
	feed(t, g, foreignTables, "nft -f -")
	feed(t, g, foreignLinks, "ip -batch -")
	feed(t, g, foreignServers, "modprobe ip_vs; ipvsadm -R")
}

func feed(t *testing.T, g *lab.Guest, text, command string) {
	t.Helper()
	result, err := g.RunInput(t.Context(), []byte(text), "sh", "-c", command)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%s: %v, exit code %d: %s%s", command, err, result.ExitCode, result.Stdout, result.Stderr)
	}
}

// wipe makes a guest empty for the next state. Only a test that owns the whole machine may do it so.
func wipe(t *testing.T, g *lab.Guest) {
	t.Helper()
	output(t, g, `ipvsadm -C 2>/dev/null; nft flush ruleset; ipset destroy 2>/dev/null
		for tool in iptables-legacy ip6tables-legacy; do for table in raw mangle nat filter; do
			$tool -t $table -F; $tool -t $table -X; $tool -t $table -P OUTPUT ACCEPT; done; done
		for link in eth0 kube-ipvs0 kube-ipvs1 kube-dummy-if nodelocaldns; do ip link del $link 2>/dev/null; done
		ip -6 route flush table local dev lo proto 207 2>/dev/null
		ipset destroy 2>/dev/null
		modprobe nfnetlink_acct; nfacct flush 2>/dev/null; true`)
}
