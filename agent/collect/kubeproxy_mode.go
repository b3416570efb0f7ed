package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
}

// report turns an empty mode into the one that kube-proxy chooses: iptables in every release before 1.40. From there on
// the choice is announced to change, and of an unknown version it cannot be told.
func (c configuredMode) report(version string) (offrampv1.ProxyMode, offrampv1.ModeOrigin) {
	switch {
	case !c.found:
		return proxyModeUnknown, offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN
	case c.word != "":
		return proxyMode(c.word), offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT
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

// modeFromFlags is what the command lines ask for. With --config every other flag is ignored (cmd/kube-proxy/app/options.go).
func modeFromFlags(processes []process) configuredMode {
	var modes []configuredMode
	for _, process := range processes {
		mode := configuredMode{source: "--proxy-mode", found: true}
		if file, given := process.flag("config"); given && file != "" {
			mode = configuredMode{source: "--config " + cut(printable([]byte(file)), maxArgBytes) + " is not in sight"}
		} else if mode.word, given = process.flag("proxy-mode"); !given {
			mode.source = "no --proxy-mode and no --config"
		}
		if !slices.Contains(modes, mode) {
			modes = append(modes, mode)
		}
	}
	switch len(modes) {
	case 0:
		return configuredMode{}
	case 1:
		return modes[0]
	default:
		return configuredMode{source: "the command lines of several kube-proxies differ"}
	}
}

// parseConfigz takes the mode out of /configz. The key is "mode" since 1.36 and "Mode" before; encoding/json takes both.
func parseConfigz(into *configuredMode) func(io.Reader) error {
	return func(body io.Reader) error {
		var all map[string]json.RawMessage
		text, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &all); err != nil {
			return errors.New("it is not a JSON object")
		}
		var config struct {
			Mode *string `json:"mode"`
		}
		if err := json.Unmarshal(all[configzKey], &config); err != nil || config.Mode == nil {
			return fmt.Errorf("it has no mode of %s", configzKey)
		}
		into.word, into.found = *config.Mode, true
		return nil
	}
}
