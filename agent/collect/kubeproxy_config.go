package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// proxyConfig is what one source says of how a kube-proxy is to run.
type proxyConfig struct {
	mode     configuredMode
	settings *offrampv1.KubeProxySettings // nil when it has none
	// metrics and healthz are metricsBindAddress and healthzBindAddress, "" when not said.
	metrics, healthz string
}

// object is a decoded JSON or YAML object.
type object map[string]any

// parseYAML decodes the first document of a YAML text, whose top is an object.
func parseYAML(text []byte) (object, error) {
	var top object
	if err := yaml.Unmarshal(text, &top); err != nil {
		return nil, errors.New("it is not understood as YAML")
	}
	if top == nil {
		return nil, errors.New("it is empty")
	}
	return top, nil
}

// parseProxyConfig reads a KubeProxyConfiguration (k8s.io/kube-proxy/config/v1alpha1). Names are matched exactly, as
// kube-proxy does: it ignores what is misspelled.
func parseProxyConfig(text []byte) (proxyConfig, error) {
	top, err := parseYAML(text)
	if err != nil {
		return proxyConfig{}, err
	}
	if kind := top.text("kind"); kind != "KubeProxyConfiguration" {
		return proxyConfig{}, fmt.Errorf("%w, but a %q", errNoProxyConfig, cut(kind, maxVersion))
	}
	return top.proxyConfig(), nil
}

var errNoProxyConfig = errors.New("it is no KubeProxyConfiguration")

// parseConfigz reads kube-proxy's answer at /configz. Its names are those of the versioned configuration since 1.36, and
// the internal ones of Go before.
func parseConfigz(into *proxyConfig) func(io.Reader) error {
	return func(body io.Reader) error {
		var all map[string]json.RawMessage
		text, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &all); err != nil {
			return errors.New("it is not a JSON object")
		}
		var config object
		err = json.Unmarshal(all[configzKey], &config)
		if _, isText := config.first([]string{"mode", "Mode"}).(string); err != nil || !isText {
			return fmt.Errorf("it has no mode of %s", configzKey)
		}
		*into = config.proxyConfig()
		return nil
	}
}

func (o object) proxyConfig() proxyConfig {
	config := proxyConfig{
		mode:     configuredMode{word: o.text("mode", "Mode"), found: true},
		settings: o.settings(),
		metrics:  o.text("metricsBindAddress", "MetricsBindAddress"),
		healthz:  o.text("healthzBindAddress", "HealthzBindAddress"),
	}
	return config
}

func (o object) settings() *offrampv1.KubeProxySettings {
	ipvs := o.object("ipvs", "IPVS")
	iptables, nftables := o.object("iptables", "IPTables"), o.object("nftables", "NFTables")
	settings := &offrampv1.KubeProxySettings{
		IpvsExcludeCidrs:      ipvs.list("excludeCIDRs", "ExcludeCIDRs"),
		IpvsScheduler:         ipvs.text("scheduler", "Scheduler"),
		IpvsStrictArp:         ipvs.on("strictARP", "StrictARP"),
		NodePortAddresses:     o.list("nodePortAddresses", "NodePortAddresses"),
		IptablesMasqueradeAll: iptables.on("masqueradeAll", "MasqueradeAll"),
		IptablesMasqueradeBit: iptables.bit("masqueradeBit", "MasqueradeBit"),
		NftablesMasqueradeAll: nftables.on("masqueradeAll", "MasqueradeAll"),
		NftablesMasqueradeBit: nftables.bit("masqueradeBit", "MasqueradeBit"),
		ClusterCidrs:          bounded(splitList(o.text("clusterCIDR", "ClusterCIDR"))),
		DetectLocalMode:       o.text("detectLocalMode", "DetectLocalMode"),
		FeatureGates:          o.object("featureGates", "FeatureGates").gates(),
		ConntrackTcpBeLiberal: o.object("conntrack", "Conntrack").on("tcpBeLiberal", "TCPBeLiberal"),
	}
	o.object("Linux").addLinux(settings, o.text("Mode"))
	if cidrs := o.object("DetectLocal").list("ClusterCIDRs"); len(cidrs) > 0 {
		settings.ClusterCidrs = cidrs
	}
	return settings
}

// addLinux adds what the internal form of newer releases keeps apart. Its one masqueradeAll is that of nftables mode under
// that mode, and of iptables and ipvs mode else (pkg/proxy/apis/config/v1alpha1/conversion.go).
func (o object) addLinux(settings *offrampv1.KubeProxySettings, mode string) {
	if o == nil {
		return
	}
	all := o.on("MasqueradeAll")
	settings.NftablesMasqueradeAll = settings.GetNftablesMasqueradeAll() || all && mode == "nftables"
	settings.IptablesMasqueradeAll = settings.GetIptablesMasqueradeAll() || all && mode != "nftables"
	liberal := o.object("Conntrack").on("TCPBeLiberal")
	settings.ConntrackTcpBeLiberal = settings.GetConntrackTcpBeLiberal() || liberal
}

// settingsFromFlags is what flags of kube-proxy say; nil when they say nothing of it (cmd/kube-proxy/app/options.go).
func settingsFromFlags(flags arguments) *offrampv1.KubeProxySettings {
	settings := &offrampv1.KubeProxySettings{
		IpvsExcludeCidrs:      bounded(flags.list("ipvs-exclude-cidrs")),
		IpvsStrictArp:         flags.on("ipvs-strict-arp"),
		NodePortAddresses:     bounded(flags.list("nodeport-addresses")),
		IptablesMasqueradeAll: flags.on("masquerade-all"),
		NftablesMasqueradeAll: flags.on("masquerade-all"),
		IptablesMasqueradeBit: -1,
		NftablesMasqueradeBit: -1,
		ConntrackTcpBeLiberal: flags.on("conntrack-tcp-be-liberal"),
	}
	if bit, found := flags.last("iptables-masquerade-bit"); found {
		settings.IptablesMasqueradeBit = parseBit(bit)
	}
	scheduler, _ := flags.last("ipvs-scheduler")
	detect, _ := flags.last("detect-local-mode")
	cluster, _ := flags.last("cluster-cidr")
	settings.IpvsScheduler, settings.DetectLocalMode = clean(scheduler), clean(detect)
	settings.ClusterCidrs = bounded(splitList(cluster))
	settings.FeatureGates = gatesFromFlags(flags.list("feature-gates"))
	return settings
}
