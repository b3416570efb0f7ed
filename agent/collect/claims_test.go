package collect

import (
	"net/netip"
	"strings"
	"testing"
)

func server(protocol, address string) virtualServer {
	return virtualServer{protocol: protocol, address: netip.MustParseAddrPort(address), realServers: 2}
}

func TestClaimsOwner(t *testing.T) {
	all := handClaims()
	routed := server("TCP", "10.96.0.1:443")
	routed.others = 1
	for name, test := range map[string]struct {
		by     claims
		server virtualServer
		want   string
	}{
		"a Service":                        {all, server("TCP", "10.96.0.1:443"), "kube-proxy/ipvs"},
		"a Service that routes":            {all, routed, "unknown"},
		"another protocol":                 {all, server("UDP", "10.96.0.1:443"), "unknown"},
		"a NodePort":                       {all, server("TCP", "192.0.2.7:30080"), "kube-proxy/ipvs"},
		"a NodePort's port elsewhere":      {all, server("TCP", "203.0.113.1:30080"), "foreign:unidentified"},
		"a Service, addresses unknown":     {claims{ports: all.ports}, server("TCP", "10.96.0.1:443"), "kube-proxy/ipvs"},
		"a NodePort, addresses unknown":    {claims{ports: all.ports}, server("TCP", "192.0.2.7:30080"), "unknown"},
		"a Service, sets unknown":          {claims{local: all.local}, server("TCP", "10.96.0.1:443"), "unknown"},
		"a stranger, sets unknown":         {claims{local: all.local}, server("TCP", "203.0.113.1:80"), "unknown"},
		"a Service, nothing known":         {claims{}, server("TCP", "10.96.0.1:443"), "unknown"},
		"a stranger, sets known and empty": {claims{ports: newServicePorts(), local: all.local}, server("TCP", "203.0.113.1:80"), "foreign:unidentified"},
	} {
		if got, reason := test.by.owner(test.server); string(got) != test.want || reason == "" {
			t.Errorf("%s: %s because %q, want %s", name, got, reason, test.want)
		}
	}
}

// A kernel that has no ipsets has no members in them: an answer. One that cannot be asked gives none.
func TestReadServicePortsWithoutIPSets(t *testing.T) {
	none := hostOf(t, map[string]string{"proc/net/netlink": "sk Eth Pid\n"})
	ports, err := readServicePorts(t.Context(), newModules(none))
	if err != nil || ports == nil || ports.HasService("TCP", netip.MustParseAddrPort("10.96.0.1:443")) {
		t.Errorf("%v, %v", ports, err)
	}
	if ports, err := readServicePorts(t.Context(), newModules(hostOf(t, nil))); err == nil {
		t.Errorf("without a proc file system: %v", ports)
	}

	scan := &scan{scanner: New(Config{Host: hostOf(t, nil)})}
	by := scan.claims(t.Context())
	if by.ports != nil || by.local == nil || by.err == nil || !strings.Contains(by.err.Error(), "kube-proxy's sets") {
		t.Errorf("%+v", by)
	}
}

func TestReadIPSetsWithoutTheModule(t *testing.T) {
	wantState(t, readIPSets(t.Context(), newModules(hostOf(t, map[string]string{"proc/net/netlink": "sk Eth Pid\n"}))), sectionAbsent)
	wantState(t, readIPSets(t.Context(), newModules(hostOf(t, nil))), sectionUnreadable)
}
