package kubeproxy_test

import (
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestLeftover(t *testing.T) {
	modes := []offrampv1.ProxyMode{
		offrampv1.ProxyMode_PROXY_MODE_IPTABLES, offrampv1.ProxyMode_PROXY_MODE_IPVS,
		offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ProxyMode_PROXY_MODE_NONE,
		offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED, 99,
	}
	const y, n, u = kubeproxy.Yes, kubeproxy.No, kubeproxy.Unknown
	cases := map[kubeproxy.Owner][7]kubeproxy.Answer{
		// iptables, ipvs, nftables, none, unknown, unspecified, of a newer version
		kubeproxy.OwnerIPTables:         {n, y, y, y, u, u, u},
		kubeproxy.OwnerIPVS:             {y, n, y, y, u, u, u},
		kubeproxy.OwnerShared:           {n, n, y, y, u, u, u},
		kubeproxy.OwnerNFTables:         {y, y, n, y, u, u, u},
		kubeproxy.OwnerKubelet:          {n, n, n, n, n, n, n},
		kubeproxy.OwnerKernel:           {n, n, n, n, n, n, n},
		kubeproxy.Foreign("calico"):     {n, n, n, n, n, n, n},
		kubeproxy.OwnerUnknown:          {u, u, u, u, u, u, u},
		"":                              {u, u, u, u, u, u, u},
		"kube-proxy/of-a-newer-version": {u, u, u, u, u, u, u},
	}
	for owner, want := range cases {
		for i, mode := range modes {
			if got := kubeproxy.Leftover(owner, mode); got != want[i] {
				t.Errorf("leftover of %q under %v: %d, want %d", owner, mode, got, want[i])
			}
		}
	}
}

func TestSharedChainsMode(t *testing.T) {
	set := kubeproxy.ChainRule{HasSetMatch: true}
	last := kubeproxy.ChainRule{Comment: "kubernetes service nodeports; NOTE: this must be the last rule in this chain"}
	cases := []struct {
		name  string
		rules []kubeproxy.ChainRule
		want  offrampv1.ProxyMode
	}{
		{"empty", nil, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN},
		{"set match", []kubeproxy.ChainRule{{}, set}, offrampv1.ProxyMode_PROXY_MODE_IPVS},
		{"ipvs without a Service in this family", []kubeproxy.ChainRule{{}, {To: "KUBE-NODE-PORT"}}, offrampv1.ProxyMode_PROXY_MODE_IPVS},
		{"last rule", []kubeproxy.ChainRule{{}, last}, offrampv1.ProxyMode_PROXY_MODE_IPTABLES},
		{"Services alone", []kubeproxy.ChainRule{{To: "KUBE-SVC-IJHALPHTORMHHPPK"}}, offrampv1.ProxyMode_PROXY_MODE_IPTABLES},
		{"both", []kubeproxy.ChainRule{set, last}, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN},
		{"somebody else's", []kubeproxy.ChainRule{{Comment: "mine", To: "cali-x"}}, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN},
	}
	for _, c := range cases {
		if got := kubeproxy.SharedChainsMode(c.rules); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
