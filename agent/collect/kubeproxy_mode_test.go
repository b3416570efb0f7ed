package collect

import (
	"strings"
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestRunningMode(t *testing.T) {
	for name, test := range map[string]struct {
		answers []modeAnswer
		want    offrampv1.ProxyMode
		source  string
	}{
		"one":                               {[]modeAnswer{{"u1", "ipvs"}}, offrampv1.ProxyMode_PROXY_MODE_IPVS, "u1"},
		"two alike":                         {[]modeAnswer{{"u1", "nftables"}, {"u2", "nftables"}}, offrampv1.ProxyMode_PROXY_MODE_NFTABLES, "u1"},
		"two unalike":                       {[]modeAnswer{{"u1", "iptables"}, {"u2", "ipvs"}}, proxyModeUnknown, `u1 says "iptables", u2 says "ipvs"`},
		"of tomorrow":                       {[]modeAnswer{{"u1", "ebpf"}}, proxyModeUnknown, `u1 says "ebpf"`},
		"none is not for kube-proxy to say": {[]modeAnswer{{"u1", "none"}}, proxyModeUnknown, `u1 says "none"`},
	} {
		if mode, source := runningMode(test.answers); mode != test.want || source != test.source {
			t.Errorf("%s: %v, %q; want %v, %q", name, mode, source, test.want, test.source)
		}
	}
}

func TestConfiguredMode(t *testing.T) {
	const (
		iptables  = offrampv1.ProxyMode_PROXY_MODE_IPTABLES
		ipvs      = offrampv1.ProxyMode_PROXY_MODE_IPVS
		unknown   = offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN
		explicit  = offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT
		defaulted = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	)
	for name, test := range map[string]struct {
		mode    configuredMode
		version string
		want    offrampv1.ProxyMode
		origin  offrampv1.ModeOrigin
	}{
		"not known":                {configuredMode{}, "v1.37.2", proxyModeUnknown, unknown},
		"written down":             {configuredMode{word: "ipvs", found: true}, "", ipvs, explicit},
		"a word of tomorrow":       {configuredMode{word: "ebpf", found: true}, "v1.50.0", proxyModeUnknown, explicit},
		"nobody chose":             {configuredMode{found: true}, "v1.37.2", iptables, defaulted},
		"nobody chose, last":       {configuredMode{found: true}, "v1.39.9", iptables, defaulted},
		"nobody chose, new":        {configuredMode{found: true}, "v1.40.0-alpha.1", proxyModeUnknown, defaulted},
		"nobody chose, no version": {configuredMode{found: true}, "", proxyModeUnknown, defaulted},
	} {
		if mode, origin := test.mode.report(test.version); mode != test.want || origin != test.origin {
			t.Errorf("%s: %v, %v; want %v, %v", name, mode, origin, test.want, test.origin)
		}
	}
}

func TestConfiguredModeOfFlags(t *testing.T) {
	for lines, want := range map[string]configuredMode{
		"":                                    {},
		"--proxy-mode=ipvs":                   {word: "ipvs", found: true, source: "--proxy-mode"},
		"--proxy-mode ipvs|--proxy-mode=ipvs": {word: "ipvs", found: true, source: "--proxy-mode"},
		"--proxy-mode=":                       {found: true, source: "--proxy-mode"},
		"-v 2":                                {found: true, source: "no --proxy-mode and no --config"},
		"--config=/k.conf --proxy-mode=ipvs":  {source: "--config /k.conf is not in sight"},
		"--config /k.conf":                    {source: "--config /k.conf is not in sight"},
		"--proxy-mode=ipvs|--proxy-mode=iptables": {source: "the configurations of several kube-proxies differ"},
	} {
		var processes []process
		for line := range strings.SplitSeq(lines, "|") {
			if line != "" {
				processes = append(processes, process{args: append([]string{"kube-proxy"}, strings.Fields(line)...)})
			}
		}
		p := &kubeProxy{files: &proxyFiles{}}
		p.configs = p.files.configsOf(processes)
		if got := p.config().mode; got != want {
			t.Errorf("%s: %+v, want %+v", lines, got, want)
		}
	}
}

func TestParseConfigz(t *testing.T) {
	for text, want := range map[string]string{
		`{"kubeproxy.config.k8s.io":{"mode":"ipvs","x":1}}`:      "ipvs", // v1alpha1, since 1.36
		`{"kubeproxy.config.k8s.io":{"Mode":"ipvs","Linux":{}}}`: "ipvs", // internal, before
		`{"kubeproxy.config.k8s.io":{"mode":""}}`:                "(empty)",
		`{"kubeproxy.config.k8s.io":{}}`:                         "",
		`{"kubeproxy.config.k8s.io":{"mode":7}}`:                 "",
		`{"kubeproxy.config.k8s.io":[]}`:                         "",
		`{"kubeletconfig":{"mode":"ipvs"}}`:                      "",
		`[]`:                                                     "",
		`<html>`:                                                 "",
		``:                                                       "",
	} {
		var config proxyConfig
		err := parseConfigz(&config)(strings.NewReader(text))
		got := config.mode.word
		if config.mode.found && got == "" {
			got = "(empty)"
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}
