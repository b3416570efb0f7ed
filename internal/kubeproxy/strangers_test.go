package kubeproxy_test

import (
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

// Other people's names, and names that only look like kube-proxy's. Written by hand before the code.
func TestOtherPeoplesChains(t *testing.T) {
	cases := []struct{ table, name, want string }{
		// kubelet
		{"mangle", "KUBE-IPTABLES-HINT", "kubelet"},
		{"mangle", "KUBE-KUBELET-CANARY", "kubelet"},
		{"nat", "KUBE-KUBELET-CANARY", "kubelet"},
		{"filter", "KUBE-KUBELET-CANARY", "kubelet"},
		{"filter", "KUBE-FIREWALL", "kubelet"},
		{"nat", "KUBE-MARK-DROP", "kubelet"},
		// kube-router, k3s, RKE2
		{"filter", "KUBE-ROUTER-INPUT", "foreign:kube-router"},
		{"filter", "KUBE-ROUTER-FORWARD", "foreign:kube-router"},
		{"filter", "KUBE-ROUTER-OUTPUT", "foreign:kube-router"},
		{"filter", "KUBE-ROUTER-SERVICES", "foreign:kube-router"},
		{"nat", "KUBE-ROUTER-HAIRPIN", "foreign:kube-router"},
		{"filter", "KUBE-NWPLCY-XM7TQGIIXKOMQW2K", "foreign:kube-router"},
		{"filter", "KUBE-NWPLCY-DEFAULT", "foreign:kube-router"},
		{"filter", "KUBE-POD-FW-7M5QLYWQZG2XOKWS", "foreign:kube-router"},
		// host ports of cri-o and of the old dockershim
		{"nat", "KUBE-HOSTPORTS", "foreign:cri-o"},
		{"nat", "KUBE-HP-IJHALPHTORMHHPPK", "foreign:cri-o"},
		{"nat", "CRIO-HOSTPORTS-MASQ", "foreign:cri-o"},
		{"nat", "CRIO-MASQ-IJHALPHTORMHHPPK", "foreign:cri-o"},
		// CNI plugins
		{"nat", "CNI-HOSTPORT-SETMARK", "foreign:cni-portmap"},
		{"nat", "CNI-HOSTPORT-DNAT", "foreign:cni-portmap"},
		{"nat", "CNI-HOSTPORT-MASQ", "foreign:cni-portmap"},
		{"nat", "CNI-DN-0123456789abcdef01234", "foreign:cni-portmap"},
		{"nat", "CNI-0123456789abcdef01234567", "foreign:cni-bridge"},
		{"filter", "CNI-FORWARD", "foreign:cni-firewall"},
		{"filter", "cali-FORWARD", "foreign:calico"},
		{"nat", "cali-fip-dnat", "foreign:calico"},
		{"filter", "CILIUM_INPUT", "foreign:cilium"},
		{"nat", "CILIUM_POST_nat", "foreign:cilium"},
		{"mangle", "OLD_CILIUM_PRE_mangle", "foreign:cilium"},
		{"filter", "FLANNEL-FWD", "foreign:flannel"},
		{"filter", "WEAVE-NPC-EGRESS-ACCEPT", "foreign:weave"},
		{"nat", "AWS-SNAT-CHAIN-0", "foreign:aws-vpc-cni"},
		// firewalls and containers
		{"nat", "DOCKER", "foreign:docker"},
		{"filter", "DOCKER-USER", "foreign:docker"},
		{"filter", "DOCKER-ISOLATION-STAGE-1", "foreign:docker"},
		{"filter", "INPUT_direct", "foreign:firewalld"},
		{"filter", "IN_public_allow", "foreign:firewalld"},
		{"filter", "ufw-before-input", "foreign:ufw"},
		{"filter", "ufw6-user-forward", "foreign:ufw"},
		{"filter", "f2b-sshd", "foreign:fail2ban"},
		{"filter", "my-own-chain", "foreign:unidentified"},
		{"filter", "NOT-KUBE-SERVICES", "foreign:unidentified"},
		// built-in ones are nobody's, in their tables
		{"nat", "PREROUTING", "kernel"},
		{"filter", "FORWARD", "kernel"},
		{"raw", "OUTPUT", "kernel"},
		{"security", "INPUT", "kernel"},
		{"filter", "PREROUTING", "foreign:unidentified"},
		{"arp", "INPUT", "foreign:unidentified"},
		// kube-proxy's names of before 1.28, and KUBE- names that nobody is known to use
		{"nat", "KUBE-XLB-IJHALPHTORMHHPPK", "unknown"},
		{"nat", "KUBE-FIRE-WALL", "unknown"},
		{"nat", "KUBE-FIREWALL", "unknown"},
		{"nat", "KUBE-SOMETHING", "unknown"},
		// kube-proxy's names in the wrong table or of the wrong length
		{"filter", "KUBE-SVC-IJHALPHTORMHHPPK", "unknown"},
		{"mangle", "KUBE-SERVICES", "unknown"},
		{"filter", "KUBE-MARK-MASQ", "unknown"},
		{"filter", "KUBE-LOAD-BALANCER", "unknown"},
		{"raw", "KUBE-PROXY-CANARY", "unknown"},
		{"raw", "KUBE-KUBELET-CANARY", "unknown"},
		{"nat", "KUBE-SVC-IJHALPHTORMHHPP", "unknown"},
		{"nat", "KUBE-SVC-IJHALPHTORMHHPPKK", "unknown"},
		{"nat", "KUBE-SVC-IJHALPHTORMHHPP1", "unknown"},
		{"nat", "KUBE-SVC-ijhalphtormhhppk", "unknown"},
		{"nat", "KUBE-SERVICES2", "unknown"},
		{"nat", "KUBE-NODE-PORT-", "unknown"},
		{"nat", "$(reboot)", "foreign:unidentified"},
		{"nat", "", "foreign:unidentified"},
	}
	for _, c := range cases {
		for _, family := range []kubeproxy.Family{kubeproxy.IPv4, kubeproxy.IPv6} {
			got := kubeproxy.ChainOwner(kubeproxy.Chain{Table: c.table, Name: c.name, Family: family})
			if string(got) != c.want {
				t.Errorf("owner of %s %q is %s, want %s", c.table, c.name, got, c.want)
			}
		}
	}
}

func TestOtherPeoplesSets(t *testing.T) {
	cases := []struct {
		name, kind string
		family     kubeproxy.Family
		want       string
	}{
		{"KUBE-SRC-XM7TQGIIXKOMQW2K", "hash:ip", kubeproxy.IPv4, "foreign:kube-router"},
		{"inet6:KUBE-DST-XM7TQGIIXKOMQW2K", "hash:ip", kubeproxy.IPv6, "foreign:kube-router"},
		{"kube-router-svip-prt", "hash:ip,port", kubeproxy.IPv4, "foreign:kube-router"},
		{"cali40all-ipam-pools", "hash:net", kubeproxy.IPv4, "foreign:calico"},
		{"cali60masq-ipam-pools", "hash:net", kubeproxy.IPv6, "foreign:calico"},
		{"blocklist", "hash:net", kubeproxy.IPv4, "foreign:unidentified"},
		{"$(reboot)", "hash:ip", kubeproxy.IPv4, "foreign:unidentified"},
		// a name of kube-proxy's with another type or family is not provably kube-proxy's
		{"KUBE-CLUSTER-IP", "hash:ip", kubeproxy.IPv4, "unknown"},
		{"KUBE-CLUSTER-IP", "hash:ip,port", kubeproxy.IPv6, "unknown"},
		{"KUBE-6-CLUSTER-IP", "hash:ip,port", kubeproxy.IPv4, "unknown"},
		{"KUBE-NODE-PORT-TCP", "hash:ip,port", kubeproxy.IPv4, "unknown"},
		{"KUBE-NODE-PORT-TCP", "bitmap:port", kubeproxy.IPv4, "unknown"},
		{"KUBE-IPVS-IPS", "list:set", kubeproxy.FamilyAny, "unknown"},
		// the full IPv6 names are too long for the kernel
		{"KUBE-6-LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net", kubeproxy.IPv6, "unknown"},
		{"KUBE-6-NODE-PORT-LOCAL-SCTP-HASH", "hash:ip,port", kubeproxy.IPv6, "unknown"},
		{"KUBE-6-LOAD-BALANCER-SOURCE-CID", "hash:ip,port,net", kubeproxy.IPv6, "kube-proxy/ipvs"},
		{"KUBE-6-NODE-PORT-LOCAL-SCTP-HAS", "hash:ip,port", kubeproxy.IPv6, "kube-proxy/ipvs"},
		{"KUBE-NEW-SET", "hash:ip", kubeproxy.IPv4, "unknown"},
	}
	for _, c := range cases {
		if got := kubeproxy.SetOwner(kubeproxy.Set{Name: c.name, Type: c.kind, Family: c.family}); string(got) != c.want {
			t.Errorf("owner of set %s %s is %s, want %s", c.name, c.kind, got, c.want)
		}
	}
}

func TestOtherPeoplesTablesAndLinks(t *testing.T) {
	tables := map[kubeproxy.Table]string{
		{Family: "ip", Name: "kube-proxy"}:       "kube-proxy/nftables",
		{Family: "ip6", Name: "kube-proxy"}:      "kube-proxy/nftables",
		{Family: "inet", Name: "kube-proxy"}:     "foreign:unidentified",
		{Family: "bridge", Name: "kube-proxy"}:   "foreign:unidentified",
		{Family: "ip", Name: "kube-proxy2"}:      "foreign:unidentified",
		{Family: "ip", Name: "nat"}:              "foreign:iptables-nft",
		{Family: "inet", Name: "nat"}:            "foreign:unidentified",
		{Family: "inet", Name: "firewalld"}:      "foreign:firewalld",
		{Family: "ip", Name: "calico"}:           "foreign:calico",
		{Family: "inet", Name: "cni_hostport"}:   "foreign:cni-portmap",
		{Family: "ip6", Name: "docker-bridges"}:  "foreign:docker",
		{Family: "ip", Name: "flannel-ipv4"}:     "foreign:flannel",
		{Family: "netdev", Name: "kube-proxy"}:   "foreign:unidentified",
		{Family: "", Name: ""}:                   "foreign:unidentified",
		{Family: "ip nat", Name: "x"}:            "foreign:unidentified",
		{Family: "inet", Name: "crio-hostports"}: "foreign:cri-o",
	}
	for table, want := range tables {
		if got := kubeproxy.TableOwner(table); string(got) != want {
			t.Errorf("owner of table %v is %s, want %s", table, got, want)
		}
	}
	links := map[kubeproxy.Link]string{
		{Name: "kube-ipvs0", Type: "dummy"}:    "kube-proxy/ipvs",
		{Name: "kube-ipvs0", Type: "bridge"}:   "foreign:unidentified",
		{Name: "kube-ipvs0"}:                   "foreign:unidentified",
		{Name: "kube-ipvs1", Type: "dummy"}:    "foreign:unidentified",
		{Name: "nodelocaldns", Type: "dummy"}:  "foreign:nodelocaldns",
		{Name: "kube-dummy-if", Type: "dummy"}: "foreign:kube-router",
	}
	for link, want := range links {
		if got := kubeproxy.LinkOwner(link); string(got) != want {
			t.Errorf("owner of link %v is %s, want %s", link, got, want)
		}
	}
	if got := kubeproxy.NfacctOwner("my_counter"); got != kubeproxy.Foreign("unidentified") {
		t.Errorf("owner of my_counter is %s", got)
	}
}
