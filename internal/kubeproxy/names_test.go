package kubeproxy_test

import (
	"slices"
	"strings"
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

// The rule by which kube-proxy names its IPv6 sets, beside the table that is written out.
func TestIPv6SetNamesFollowTheRule(t *testing.T) {
	sets := kubeproxy.Sets()
	if len(sets) != 34 {
		t.Fatalf("%d sets, want 34", len(sets))
	}
	for i := 0; i < len(sets); i += 2 {
		want := strings.Replace(sets[i].Name, "KUBE-", "KUBE-6-", 1)
		want = want[:min(len(want), 31)]
		if sets[i+1].Name != want {
			t.Errorf("IPv6 set of %s is %s, want %s", sets[i].Name, sets[i+1].Name, want)
		}
	}
}

func TestAttributingSets(t *testing.T) {
	for _, set := range kubeproxy.ServiceSets() {
		if set.Type != "hash:ip,port" || kubeproxy.SetOwner(set) != kubeproxy.OwnerIPVS {
			t.Errorf("%v cannot attribute a Service", set)
		}
	}
	if got := len(kubeproxy.ServiceSets()); got != 12 {
		t.Errorf("%d sets attribute Services, want 12", got)
	}
	if got := len(kubeproxy.NodePortSets()); got != 12 {
		t.Errorf("%d sets attribute node ports, want 12", got)
	}
	for _, set := range kubeproxy.NodePortSets() {
		if kubeproxy.SetOwner(set.Set) != kubeproxy.OwnerIPVS || !strings.Contains(set.Name, "-"+set.Protocol) {
			t.Errorf("%v cannot attribute a node port", set)
		}
	}
}

// A single changed character takes a name away from kube-proxy, unless it makes another name of kube-proxy's.
func TestNoNearMissIsKubeProxys(t *testing.T) {
	own := func(table, name string) bool {
		return kubeproxy.ChainOwner(kubeproxy.Chain{Table: table, Name: name}).IsKubeProxy()
	}
	names := []string{
		"KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER", "KUBE-MARK-MASQ", "KUBE-NODEPORTS",
		"KUBE-PROXY-CANARY",
	}
	for _, name := range names {
		if !own("nat", name) {
			t.Errorf("%s is not kube-proxy's", name)
		}
		for i := range name {
			for _, near := range []string{name[:i] + "x" + name[i+1:], name[:i] + name[i+1:], name[:i] + "-" + name[i:]} {
				if own("nat", near) && !slices.Contains(names, near) {
					t.Errorf("%s is kube-proxy's", near)
				}
			}
		}
	}
}

func FuzzChainOwner(f *testing.F) {
	f.Add("nat", "KUBE-SVC-IJHALPHTORMHHPPK")
	f.Add("filter", "cali-FORWARD")
	f.Fuzz(func(t *testing.T, table, name string) {
		owner := kubeproxy.ChainOwner(kubeproxy.Chain{Table: table, Name: name})
		if owner == "" {
			t.Error("no owner")
		}
		if owner.IsKubeProxy() && (!strings.HasPrefix(name, "KUBE-") || strings.ContainsAny(name, " \n\x00")) {
			t.Errorf("%q in %q is kube-proxy's", name, table)
		}
	})
}
