package kubeproxy

import "sync"

// foreignChains are other people's iptables chains. Those that begin with KUBE- come first: they are why a prefix proves
// nothing (kube-router and k3s/RKE2 network policy; host ports of cri-o and of the old dockershim).
var foreignChains = sync.OnceValue(func() []lookAlike {
	return []lookAlike{
		like("kube-router", `KUBE-ROUTER-(?:INPUT|FORWARD|OUTPUT|SERVICES|HAIRPIN)`),
		like("kube-router", `KUBE-NWPLCY-(?:[A-Z2-7]{16}|DEFAULT|COMMON)|KUBE-POD-FW-[A-Z2-7]{16}`),
		like("cri-o", `KUBE-HOSTPORTS|KUBE-HP-[A-Z2-7]{16}|CRIO-HOSTPORTS-MASQ|CRIO-MASQ-[A-Z2-7]{16}`),
		like("cni-portmap", `CNI-HOSTPORT-(?:DNAT|SETMARK|MASQ|SNAT)|CNI-(?:DN|SN)-[0-9a-f]{21}`),
		like("cni-bridge", `CNI-[0-9a-f]{24}`),
		like("cni-firewall", `CNI-(?:FORWARD|ADMIN|ISOLATION-STAGE-[12])`),
		like("calico", `cali-[A-Za-z0-9_.+-]{1,23}`),
		like("cilium", `(?:OLD_)?CILIUM_(?:INPUT|OUTPUT|FORWARD|(?:PRE|POST|OUTPUT)_(?:mangle|nat|raw))`),
		like("docker", `DOCKER(?:-USER|-INGRESS|-FORWARD|-BRIDGE|-CT|-INTERNAL|-ISOLATION-STAGE-[12]|_OUTPUT|_POSTROUTING)?`),
		like("flannel", `FLANNEL-(?:FWD|POSTRTG)`),
		like("weave", `WEAVE(?:-EXPOSE|-CANARY|-IPSEC-(?:IN|OUT)(?:-MARK)?|-NPC(?:-DEFAULT|-INGRESS|-EGRESS(?:-ACCEPT|-CUSTOM|-DEFAULT)?)?)?`),
		like("antrea", `ANTREA-(?:FORWARD|PREROUTING|POSTROUTING|OUTPUT|INPUT|MANGLE)`),
		like("aws-vpc-cni", `AWS-(?:SNAT|CONNMARK)-CHAIN-[0-9]{1,3}`),
		like("ip-masq-agent", `IP-MASQ(?:-AGENT)?`),
		like("istio", `ISTIO_(?:INBOUND|OUTPUT|REDIRECT|IN_REDIRECT|DIVERT|TPROXY|PRERT|POSTRT|DROP)`),
		like("libvirt", `LIBVIRT_(?:INP|OUT|FW[IOX]|PRT)`),
		like("podman", `NETAVARK(?:_FORWARD|_INPUT|_ISOLATION_[123]|-HOSTPORT-(?:DNAT|SETMARK|MASQ)|-DN-[0-9A-F]{1,18}|-[0-9A-F]{1,19})`),
		like("firewalld", `(?:INPUT|FORWARD|OUTPUT|PREROUTING|POSTROUTING)_(?:direct|ZONES|ZONES_SOURCE|POLICIES_(?:pre|post)|IN_ZONES|OUT_ZONES)`),
		like("firewalld", `(?:IN|FWD|FWDI|FWDO|PRE|POST)_[A-Za-z0-9_-]{1,23}`),
		like("ufw", `ufw6?-[a-z0-9-]{1,24}`),
		like("fail2ban", `f2b-[A-Za-z0-9_.-]{1,24}`),
		like("tailscale", `ts-(?:input|forward|postrouting)`),
	}
})
