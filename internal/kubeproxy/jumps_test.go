package kubeproxy_test

import (
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

// jump is a jump as iptables-save would print it, for short.
func jump(table, from, to, comment string) kubeproxy.Jump {
	return kubeproxy.Jump{Table: table, From: from, To: to, Comment: comment, Family: kubeproxy.IPv4}
}

func withState(j kubeproxy.Jump) kubeproxy.Jump {
	j.CtStateNew = true
	return j
}

func withMore(j kubeproxy.Jump) kubeproxy.Jump {
	j.OtherMatches = true
	return j
}

func TestJumpOwner(t *testing.T) {
	cases := []struct {
		name string
		jump kubeproxy.Jump
		want string
	}{
		{"shared nat", jump("nat", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals"), "kube-proxy/shared"},
		{"shared nat output", jump("nat", "OUTPUT", "KUBE-SERVICES", "kubernetes service portals"), "kube-proxy/shared"},
		{"shared postrouting", jump("nat", "POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules"), "kube-proxy/shared"},
		{"shared forward", jump("filter", "FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules"), "kube-proxy/shared"},
		{"ipvs firewall", jump("filter", "INPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"), "kube-proxy/ipvs"},
		{"iptables firewall", withState(jump("filter", "INPUT", "KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall")), "kube-proxy/iptables"},
		{"iptables firewall on output", withState(jump("filter", "OUTPUT", "KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall")), "kube-proxy/iptables"},
		{"ipvs has none on output", jump("filter", "OUTPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules"), "unknown"},
		{"ctstate missing", jump("filter", "INPUT", "KUBE-PROXY-FIREWALL", "kubernetes load balancer firewall"), "unknown"},
		{"ctstate too many", withState(jump("filter", "INPUT", "KUBE-PROXY-FIREWALL", "kube-proxy firewall rules")), "unknown"},
		{"ctstate in nat", withState(jump("nat", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals")), "unknown"},
		{"one more match", withMore(jump("nat", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals")), "unknown"},
		{"other comment", jump("nat", "PREROUTING", "KUBE-SERVICES", "mine"), "unknown"},
		{"no comment", jump("filter", "INPUT", "KUBE-IPVS-FILTER", ""), "unknown"},
		{"kubelet", jump("filter", "INPUT", "KUBE-FIREWALL", ""), "kubelet"},
		{"kubelet on output", jump("filter", "OUTPUT", "KUBE-FIREWALL", ""), "kubelet"},
		{"kubelet has none on forward", jump("filter", "FORWARD", "KUBE-FIREWALL", ""), "unknown"},
		{"kubelet's has no comment", jump("filter", "INPUT", "KUBE-FIREWALL", "x"), "unknown"},
		{"inside iptables mode's chains", jump("nat", "KUBE-SVC-IJHALPHTORMHHPPK", "KUBE-SEP-IJHALPHTORMHHPPK", "x"), "kube-proxy/iptables"},
		{"inside a shared chain", jump("nat", "KUBE-SERVICES", "KUBE-NODE-PORT", ""), "kube-proxy/shared"},
		{"somebody's rule in kube-proxy's chain", jump("nat", "KUBE-SERVICES", "cali-x", ""), "foreign:calico"},
		{"unknown rule in kube-proxy's chain", jump("nat", "KUBE-SERVICES", "KUBE-WHAT", ""), "unknown"},
		{"portmap uses the mark", jump("nat", "CNI-HOSTPORT-SETMARK", "KUBE-MARK-MASQ", ""), "foreign:cni-portmap"},
		{"somebody uses the mark", jump("nat", "mine", "KUBE-MARK-MASQ", ""), "foreign:unidentified"},
		{"somebody uses the mark from a built-in chain", jump("nat", "PREROUTING", "KUBE-MARK-MASQ", ""), "unknown"},
		{"kube-router", jump("filter", "INPUT", "KUBE-ROUTER-INPUT", "kube-router netpol - 4IA2OSFRMVNDXBVV"), "foreign:kube-router"},
		{"docker", jump("nat", "PREROUTING", "DOCKER", ""), "foreign:docker"},
		{"cri-o", jump("nat", "PREROUTING", "KUBE-HOSTPORTS", "kube hostport portals"), "foreign:cri-o"},
		{"in the wrong table", jump("mangle", "PREROUTING", "KUBE-SERVICES", "kubernetes service portals"), "unknown"},
		{"old name", jump("nat", "KUBE-SVC-IJHALPHTORMHHPPK", "KUBE-XLB-IJHALPHTORMHHPPK", ""), "unknown"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := kubeproxy.JumpOwner(c.jump); string(got) != c.want {
				t.Errorf("owner is %s, want %s", got, c.want)
			}
		})
	}
}
