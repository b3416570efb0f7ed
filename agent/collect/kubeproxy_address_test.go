package collect

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseListener(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:10249": "127.0.0.1:10249",
		"0.0.0.0:10256":   "127.0.0.1:10256",
		"[::]:10256":      "[::1]:10256",
		"[::1]:7":         "[::1]:7",
		"192.0.2.7":       "192.0.2.7:10249",
		"0.0.0.0":         "127.0.0.1:10249",
		"::":              "[::1]:10249",
		"":                "",
		"localhost:10249": "",
		"127.0.0.1:0":     "",
		"127.0.0.1:70000": "",
		":10249":          "",
	} {
		got, ok := parseListener(text, metricsPort)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q is %v, %v; want %q", text, got, ok, want)
		}
	}
}

func TestFindListeners(t *testing.T) {
	own := &localAddresses{node: map[netip.Addr]struct{}{netip.MustParseAddr("192.0.2.7"): {}}}
	for name, test := range map[string]struct {
		overrides        KubeProxyAddresses
		args             string
		local            *localAddresses
		metrics, healthz string
	}{
		"nothing known":       {metrics: "127.0.0.1:10249 [::1]:10249", healthz: "127.0.0.1:10256 [::1]:10256"},
		"flags":               {args: "--metrics-bind-address=0.0.0.0:9 --healthz-bind-address [::]:8", metrics: "127.0.0.1:9", healthz: "[::1]:8"},
		"flags beside a file": {args: "--config f --metrics-bind-address=0.0.0.0:9", metrics: "127.0.0.1:10249 [::1]:10249", healthz: "127.0.0.1:10256 [::1]:10256"},
		"own address":         {args: "--metrics-bind-address=192.0.2.7:9", local: own, metrics: "192.0.2.7:9", healthz: "127.0.0.1:10256 [::1]:10256"},
		"own, but not known":  {args: "--metrics-bind-address=192.0.2.7:9", metrics: "", healthz: "127.0.0.1:10256 [::1]:10256"},
		"somebody else's":     {args: "--metrics-bind-address=203.0.113.9:9", local: own, metrics: "", healthz: "127.0.0.1:10256 [::1]:10256"},
		"told": {
			overrides: KubeProxyAddresses{Metrics: []string{"127.0.0.1:1", "[::1]:1"}, Healthz: []string{"127.0.0.1:2"}},
			args:      "--metrics-bind-address=0.0.0.0:9", metrics: "127.0.0.1:1 [::1]:1", healthz: "127.0.0.1:2",
		},
	} {
		processes := []process{{program: programKubeProxy, args: append([]string{"kube-proxy"}, strings.Fields(test.args)...)}}
		got, err := findListeners(test.overrides, new(proxyFiles).configsOf(processes), test.local)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]string{test.metrics, test.healthz}, []string{words(got.metrics), words(got.healthz)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := findListeners(KubeProxyAddresses{Metrics: []string{"localhost"}}, nil, nil); err == nil {
		t.Error("an address that is none is not refused")
	}
}

func words(addresses []netip.AddrPort) string {
	var list []string
	for _, address := range addresses {
		list = append(list, address.String())
	}
	return strings.Join(list, " ")
}
