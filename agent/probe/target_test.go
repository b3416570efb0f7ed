package probe_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/agent/probe"
)

func service(name, protocol, address string) inventory.Service {
	return inventory.Service{Name: name, Protocol: protocol, Address: netip.MustParseAddrPort(address)}
}

func picked(all ...inventory.Service) []string {
	var words []string
	for _, one := range probe.Pick(all) {
		words = append(words, one.Protocol+" "+one.Address.String())
	}
	return words
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []inventory.Service
		want []string
	}{
		{"nothing", nil, nil},
		{"named, beside a lower one and one at another port", []inventory.Service{
			service("default/web:https", "TCP", "10.96.0.0:443"), service("default/kubernetes:https", "TCP", "10.96.0.1:443"),
			service("default/kubernetes:other", "TCP", "10.96.0.1:6443"), service("default/kubernetes-dashboard:https", "TCP", "10.0.0.1:443"),
		}, []string{"TCP 10.96.0.1:443"}},
		{"IPVS names none: the lowest that ends in 1", []inventory.Service{
			service("", "TCP", "10.96.7.1:443"), service("", "TCP", "10.96.0.1:443"), service("", "TCP", "10.96.0.0:443"),
			service("", "UDP", "10.0.0.1:443"),
		}, []string{"TCP 10.96.0.1:443"}},
		{"DNS is both", []inventory.Service{
			service("", "UDP", "10.96.0.9:53"), service("", "UDP", "10.96.0.10:53"), service("", "TCP", "10.96.0.10:53"),
			service("", "TCP", "10.96.0.8:53"),
		}, []string{"UDP 10.96.0.10:53", "TCP 10.96.0.10:53"}},
		{"kube-system's before others", []inventory.Service{
			service("default/dns:dns", "UDP", "10.96.0.2:53"), service("default/dns:tcp", "TCP", "10.96.0.2:53"),
			service("kube-system/kube-dns:dns", "UDP", "10.96.0.10:53"), service("kube-system/kube-dns:dns-tcp", "TCP", "10.96.0.10:53"),
		}, []string{"UDP 10.96.0.10:53", "TCP 10.96.0.10:53"}},
		{"each family", []inventory.Service{
			service("default/kubernetes:https", "TCP", "[fd00:10:96::1]:443"), service("default/kubernetes:https", "TCP", "10.96.0.1:443"),
		}, []string{"TCP 10.96.0.1:443", "TCP [fd00:10:96::1]:443"}},
		{"a firewall mark has no address", []inventory.Service{{Protocol: "FWM"}}, nil},
	} {
		if diff := cmp.Diff(c.want, picked(c.all...)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestTargets(t *testing.T) {
	given, err := probe.ParseTarget("tcp/10.96.0.1:443=192.0.2.9:6443")
	if err != nil {
		t.Fatal(err)
	}
	found := []inventory.Service{service("x", "TCP", "10.96.0.1:443"), service("x", "UDP", "10.96.0.10:53")}
	got := probe.Targets([]probe.Target{given}, found)
	want := []string{"given tcp 10.96.0.1:443", "dns udp 10.96.0.10:53"}
	var words []string
	for i := range got {
		words = append(words, got[i].String())
	}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("what a person named goes before what was found: %s", diff)
	}
	var many []inventory.Service
	for i := range 20 {
		many = append(many, service("", "TCP", fmt.Sprintf("10.96.0.%d:443", i)))
	}
	if got := len(probe.Targets(nil, many)); got != probe.MaxTargets {
		t.Errorf("%d targets", got)
	}
}

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"tcp/10.96.0.1:443=192.0.2.1:6443,192.0.2.2:6443": "given tcp 10.96.0.1:443 [192.0.2.1:6443 192.0.2.2:6443]",
		"tcp/[fd00::1]:443":               "given tcp [fd00::1]:443 []",
		"udp/10.96.0.10:53=10.244.0.2:53": "dns udp 10.96.0.10:53 [10.244.0.2:53]",
		"tcp/10.96.0.10:53":               "dns tcp 10.96.0.10:53 []",
	} {
		target, err := probe.ParseTarget(text)
		if got := fmt.Sprintf("%s %v", target.String(), target.Endpoints); got != want || err != nil {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "tcp", "tcp/", "tcp/10.96.0.1", "tcp/10.96.0.1:0", "sctp/10.96.0.1:443", "udp/10.96.0.1:443", "tcp/kubernetes:443",
		"tcp/10.96.0.1:443=", "tcp/10.96.0.1:443=x", "tcp/10.96.0.1:443=10.0.0.1:1,", "tcp/10.96.0.1:443=10.0.0.1:0", "TCP/10.96.0.1:443",
	} {
		if target, err := probe.ParseTarget(text); !errors.Is(err, probe.ErrTarget) {
			t.Errorf("%q: %v (%v)", text, target, err)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	f.Add("tcp/10.96.0.1:443=192.0.2.1:6443")
	f.Fuzz(func(t *testing.T, text string) {
		target, err := probe.ParseTarget(text)
		if err == nil && (!target.Service.IsValid() || target.Service.Port() == 0) {
			t.Errorf("%q is %v", text, target)
		}
	})
}
