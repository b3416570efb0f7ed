package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// maxConfigBytes bounds a configuration that is looked into: the API server's own limit for an object is above it.
const maxConfigBytes = 1 << 20

// maxUnknownFields bounds KubeProxyConfigMap.unknown_fields.
const maxUnknownFields = 20

// wantedConfigMap reports whether a rule reads it: a kube-proxy's configuration, whatever its name, or a network plugin's.
func wantedConfigMap(config *corev1.ConfigMap) bool {
	if strings.HasPrefix(config.Name, "kube-proxy") || strings.Contains(config.Name, "kube-proxy-config") {
		return true
	}
	if slices.Contains([]string{"cilium-config", "antrea-config", "node-local-dns"}, config.Name) || strings.HasPrefix(config.Name, "antrea-config-") {
		return true
	}
	return configurationKey(config) != ""
}

// configurationKey is the key of the data that is a KubeProxyConfiguration, "" when none is: kubeadm calls it config.conf, EKS
// config, Gardener config.yaml.
func configurationKey(config *corev1.ConfigMap) string {
	for _, key := range slices.Sorted(maps.Keys(config.Data)) {
		for line := range strings.Lines(config.Data[key][:min(len(config.Data[key]), maxConfigBytes)]) {
			if strings.TrimSpace(strings.NewReplacer(`"`, "", ",", "", "'", "").Replace(line)) == "kind: KubeProxyConfiguration" {
				return key
			}
		}
	}
	return ""
}

func kubeProxyConfigs(objects []metav1.Object) []*offrampv1.KubeProxyConfigMap {
	var all []*offrampv1.KubeProxyConfigMap
	for _, object := range objects {
		config, ok := object.(*corev1.ConfigMap)
		if !ok {
			continue
		}
		if key := configurationKey(config); key != "" {
			all = append(all, configFacts(config, key))
		}
	}
	return all
}

func configFacts(config *corev1.ConfigMap, key string) *offrampv1.KubeProxyConfigMap {
	facts := &offrampv1.KubeProxyConfigMap{
		Namespace: config.Namespace, Name: config.Name, Key: key,
		Mode: offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, ModeOrigin: offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN,
	}
	if changed := changedAt(config); !changed.IsZero() {
		facts.ChangedAt = timestamppb.New(changed)
	}
	for other := range config.Data {
		if other != key {
			facts.OtherKeys = append(facts.OtherKeys, other)
		}
	}
	slices.Sort(facts.OtherKeys)
	parsed, unknown, lenient, err := parseConfiguration(config.Data[key])
	if err != nil {
		facts.Error = err.Error()
		return facts
	}
	facts.UnknownFields, facts.Lenient = unknown, lenient
	fill(facts, parsed)
	return facts
}

// changedAt is when the data last changed, by the managed fields; zero when they do not tell.
func changedAt(config *corev1.ConfigMap) time.Time {
	var last time.Time
	for _, entry := range config.ManagedFields {
		if entry.Time != nil && entry.FieldsV1 != nil && strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:data"`) && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// parseConfiguration decodes as kube-proxy does: strictly, and leniently where that fails. What the strict decoder objects to is
// returned; lenient is true when it objected to anything.
func parseConfiguration(text string) (config *kubeproxyv1alpha1.KubeProxyConfiguration, unknown []string, lenient bool, err error) {
	if len(text) > maxConfigBytes {
		return nil, nil, false, fmt.Errorf("a configuration of %d bytes, more than %d", len(text), maxConfigBytes)
	}
	encoded, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		lenient = true
		if encoded, err = yaml.YAMLToJSON([]byte(text)); err != nil {
			return nil, nil, false, fmt.Errorf("not YAML: %w", err)
		}
	}
	config = &kubeproxyv1alpha1.KubeProxyConfiguration{}
	objections, err := json.UnmarshalStrict(encoded, config)
	if err != nil {
		return nil, nil, false, fmt.Errorf("no KubeProxyConfiguration: %w", err)
	}
	for _, objection := range objections[:min(len(objections), maxUnknownFields)] {
		unknown = append(unknown, objection.Error())
	}
	return config, unknown, lenient || len(objections) > 0, nil
}

func fill(facts *offrampv1.KubeProxyConfigMap, config *kubeproxyv1alpha1.KubeProxyConfiguration) {
	facts.Mode, facts.ModeOrigin = modeOf(string(config.Mode)), offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT
	if config.Mode == "" {
		facts.Mode, facts.ModeOrigin = offrampv1.ProxyMode_PROXY_MODE_IPTABLES, offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
	}
	ipvs := config.IPVS
	facts.IpvsBlock = ipvs.Scheduler != "" || ipvs.StrictARP || len(ipvs.ExcludeCIDRs) > 0
	settings := &offrampv1.KubeProxySettings{
		Source:           "ConfigMap " + facts.GetNamespace() + "/" + facts.GetName(),
		IpvsExcludeCidrs: ipvs.ExcludeCIDRs, IpvsScheduler: ipvs.Scheduler, IpvsStrictArp: ipvs.StrictARP,
		NodePortAddresses:     config.NodePortAddresses,
		IptablesMasqueradeAll: config.IPTables.MasqueradeAll, IptablesMasqueradeBit: bit(config.IPTables.MasqueradeBit),
		NftablesMasqueradeAll: config.NFTables.MasqueradeAll, NftablesMasqueradeBit: bit(config.NFTables.MasqueradeBit),
		DetectLocalMode: string(config.DetectLocalMode),
	}
	if config.ClusterCIDR != "" {
		settings.ClusterCidrs = strings.Split(config.ClusterCIDR, ",")
	}
	if config.Conntrack.TCPBeLiberal {
		settings.ConntrackTcpBeLiberal = true
	}
	for name, on := range config.FeatureGates {
		settings.FeatureGates = append(settings.FeatureGates, fmt.Sprintf("%s=%t", name, on))
	}
	slices.Sort(settings.FeatureGates)
	facts.Settings = settings
}

// bit is a masquerade bit, -1 when it is not set.
func bit(value *int32) int32 {
	if value == nil {
		return -1
	}
	return *value
}
