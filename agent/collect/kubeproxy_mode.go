package collect

import (
	"fmt"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	proxyModeUnknown = offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	proxyModeNone    = offrampv1.ProxyMode_PROXY_MODE_NONE
	// configzKey is kube-proxy's entry in /configz (cmd/kube-proxy/app/server.go).
	configzKey = "kubeproxy.config.k8s.io"
)

// proxyMode reads kube-proxy's own word for a mode.
func proxyMode(word string) offrampv1.ProxyMode {
	switch word {
	case "iptables":
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	case "ipvs":
		return offrampv1.ProxyMode_PROXY_MODE_IPVS
	case "nftables":
		return offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	default:
		return proxyModeUnknown
	}
}

// modeAnswer is what a listener said at /proxyMode.
type modeAnswer struct{ url, word string }

// runningMode is the one mode that every listener names. Two that differ give unknown.
func runningMode(answers []modeAnswer) (mode offrampv1.ProxyMode, source string) {
	var words []string
	evidence := make([]string, 0, len(answers))
	for _, answer := range answers {
		evidence = append(evidence, fmt.Sprintf("%s says %q", answer.url, cut(answer.word, maxVersion)))
		if !slices.Contains(words, answer.word) {
			words = append(words, answer.word)
		}
	}
	if len(words) == 1 && proxyMode(words[0]) != proxyModeUnknown {
		return proxyMode(words[0]), answers[0].url
	}
	return proxyModeUnknown, cut(strings.Join(evidence, ", "), maxErrorBytes)
}

// configuredMode is a mode of a configuration, how it came about and where it was read.
type configuredMode struct {
	word   string // empty: nobody chose
	found  bool
	source string
	// preset is what a distribution chooses when nobody else did; unspecified for kube-proxy's own choice.
	preset offrampv1.ProxyMode
}

// report turns an empty mode into the one that kube-proxy chooses: iptables in every release before 1.40. From there on
// the choice is announced to change, and of an unknown version it cannot be told.
func (c configuredMode) report(version string) (offrampv1.ProxyMode, offrampv1.ModeOrigin) {
	switch {
	case !c.found:
		return proxyModeUnknown, offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN
	case c.word != "":
		return proxyMode(c.word), offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT
	case c.preset != offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED:
		return c.preset, offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	case defaultsToIPTables(version):
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES, offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	default:
		return proxyModeUnknown, offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	}
}

func defaultsToIPTables(version string) bool {
	major, minor, _ := parseRelease(strings.TrimPrefix(version, "v"))
	return major == 1 && minor < 40
}
