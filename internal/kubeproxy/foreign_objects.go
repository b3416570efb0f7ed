package kubeproxy

import "sync"

// foreignSets are other people's ipsets.
var foreignSets = sync.OnceValue(func() []lookAlike {
	return []lookAlike{
		like("kube-router", `(?:inet6:)?KUBE-(?:SRC|DST)-[A-Z2-7]{16}`),
		like("kube-router", `(?:inet6:)?kube-router-(?:pod-subnets|node-ips|local-ips|local-pods|svip|svip-prt|service-ips|ipvs-services)`),
		like("calico", `cali[46]0[A-Za-z0-9_.:+-]{1,25}`),
		like("cilium", `cilium_node_set_v[46]`),
		like("weave", `weave-[A-Za-z0-9^:;,.|~(){}\[\]@#$%&*!?<>=_+-]{1,25}|weaver-no-masq-local`),
		like("antrea", `ANTREA-[A-Z0-9-]{1,24}`),
	}
})

// foreignLinks are other people's links, as far as they matter next to kube-ipvs0.
var foreignLinks = sync.OnceValue(func() []lookAlike {
	return []lookAlike{
		like("kube-router", `kube-dummy-if|kube-bridge`),
		like("nodelocaldns", `nodelocaldns`),
		like("calico", `cali[0-9a-f]{11}|vxlan(?:-v6)?\.calico|tunl0|wireguard\.cali|wg-v6\.cali`),
		like("cilium", `cilium_(?:host|net|vxlan|geneve|wg0)|lxc[0-9a-f]{12}`),
		like("flannel", `flannel(?:\.[0-9]{1,8}|-v6\.[0-9]{1,8})|cni0`),
		like("docker", `docker0|br-[0-9a-f]{12}`),
	}
})

// foreignTables are other people's native nftables tables, as "FAMILY NAME". Those of the iptables-nft backend are here
// too: what is in them is judged chain by chain.
var foreignTables = sync.OnceValue(func() []lookAlike {
	return []lookAlike{
		like("iptables-nft", `ip6? (?:raw|mangle|nat|filter|security)|arp filter|bridge (?:filter|nat|broute)`),
		like("firewalld", `(?:inet|ip|ip6) firewalld`),
		like("calico", `ip6? calico|netdev calico`),
		like("docker", `ip6? docker-bridges`),
		like("flannel", `ip flannel-ipv4|ip6 flannel-ipv6`),
		like("cni-portmap", `(?:inet|ip|ip6) cni_hostport`),
		like("cni-bridge", `inet cni_plugins_masquerade`),
		like("cri-o", `(?:inet|ip|ip6) crio-hostports`),
		like("kube-network-policies", `inet kube-network-policies`),
		like("kindnet", `inet kindnet-[a-z0-9-]{1,32}`),
		like("libvirt", `ip6? libvirt_network`),
		like("podman", `inet netavark`),
	}
})
