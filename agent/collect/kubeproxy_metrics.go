package collect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Names of kube-proxy's metrics (pkg/proxy/metrics/metrics.go). Since 1.33 they have the label ip_family.
const (
	metricLastSync   = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	metricLastQueued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	metricRestores   = "kubeproxy_sync_proxy_rules_iptables_restore_failures_total"
	metricPartial    = "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total"
	metricNFTables   = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
	metricBuild      = "kubernetes_build_info"
	// A histogram's sum and count.
	metricDurationSum   = "kubeproxy_sync_proxy_rules_duration_seconds_sum"
	metricDurationCount = "kubeproxy_sync_proxy_rules_duration_seconds_count"
	// Of iptables mode since 1.31, where it could make its nfacct objects.
	metricLocalhost = "kubeproxy_iptables_localhost_nodeports_accepted_packets_total"
	metricInvalid   = "kubeproxy_iptables_ct_state_invalid_dropped_packets_total"

	// maxMetricLine bounds one line, in bytes.
	maxMetricLine = 1 << 16
	// maxVersion bounds the version that a kube-proxy may claim, in bytes.
	maxVersion = 64
)

// proxyMetrics is what is taken from /metrics.
type proxyMetrics struct {
	version string
	syncs   map[offrampv1.AddressFamily]*offrampv1.FamilySync
	// localhost and invalid are nil when they are not exported.
	localhost, invalid *uint64
	// seconds is how long all syncs took, count how many there were, over both families.
	seconds float64
	count   uint64
}

// addTo adds the counters.
func (m *proxyMetrics) addTo(content *offrampv1.KubeProxyVolatile) {
	content.LocalhostNodeportPackets, content.InvalidDroppedPackets = m.localhost, m.invalid
	content.SyncsMeasured = m.count
	if m.count > 0 {
		content.MeanSyncDuration = durationpb.New(time.Duration(m.seconds / float64(m.count) * float64(time.Second)))
	}
}

// parseMetrics reads Prometheus' text format line by line and takes the few metrics it knows. A known metric that cannot be
// read, or none at all, is an error.
func parseMetrics(body io.Reader) (*proxyMetrics, error) {
	metrics := &proxyMetrics{syncs: map[offrampv1.AddressFamily]*offrampv1.FamilySync{}}
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 1<<12), maxMetricLine)
	for lines.Scan() {
		name := metricName(lines.Bytes())
		if name == "" {
			continue
		}
		if err := metrics.take(name, lines.Text()[len(name):]); err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(metrics.syncs) == 0 && metrics.version == "" {
		return nil, errors.New("there are no metrics of kube-proxy's")
	}
	return metrics, nil
}

// metricName returns the name of the metric that a line is of, if it is one that matters; most of a thousand lines are not.
func metricName(line []byte) string {
	end := bytes.IndexAny(line, " {")
	if end < 0 {
		end = len(line)
	}
	switch name := string(line[:end]); name {
	case metricLastSync, metricLastQueued, metricRestores, metricPartial, metricNFTables, metricBuild,
		metricDurationSum, metricDurationCount, metricLocalhost, metricInvalid:
		return name
	default:
		return ""
	}
}

func (m *proxyMetrics) take(name, sample string) error {
	labels, value, err := parseSample(sample)
	if err != nil {
		return err
	}
	switch name {
	case metricBuild:
		m.version = cut(printable([]byte(labels["git_version"])), maxVersion)
		return nil
	case metricLocalhost:
		return addOptional(&m.localhost, value)
	case metricInvalid:
		return addOptional(&m.invalid, value)
	case metricDurationSum:
		return m.addSeconds(value)
	case metricDurationCount:
		m.count, err = addCounter(m.count, value)
		return err
	}
	sync, err := m.sync(labels["ip_family"])
	if err != nil {
		return err
	}
	switch name {
	case metricLastSync:
		sync.LastSync, err = metricTime(value)
	case metricLastQueued:
		sync.LastQueued, err = metricTime(value)
	default:
		sync.Failures, err = addCounter(sync.Failures, value)
	}
	return err
}

func (m *proxyMetrics) sync(label string) (*offrampv1.FamilySync, error) {
	family := offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED
	switch label {
	case "":
	case "IPv4":
		family = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
	case "IPv6":
		family = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
	default:
		return nil, fmt.Errorf("ip_family %q is not known", label)
	}
	if m.syncs[family] == nil {
		m.syncs[family] = &offrampv1.FamilySync{Family: family}
	}
	return m.syncs[family], nil
}

// metricTime is a number of seconds since 1970. 0 is a gauge that was never set.
func metricTime(seconds float64) (*timestamppb.Timestamp, error) {
	const year9999 = 253402300799
	if seconds == 0 {
		return nil, nil //nolint:nilnil // unset is what the field says for "never"
	}
	if !(seconds > 0 && seconds <= year9999) {
		return nil, fmt.Errorf("%g is not a time", seconds)
	}
	whole, part := math.Modf(seconds)
	return timestamppb.New(time.Unix(int64(whole), int64(part*1e9))), nil
}

func addCounter(sum uint64, value float64) (uint64, error) {
	if !(value >= 0 && value <= 1<<53) {
		return sum, fmt.Errorf("%g is not a count", value)
	}
	return sum + uint64(value), nil
}

func addOptional(sum **uint64, value float64) error {
	if *sum == nil {
		*sum = new(uint64)
	}
	total, err := addCounter(**sum, value)
	**sum = total
	return err
}

// addSeconds adds a duration of at most a century.
func (m *proxyMetrics) addSeconds(value float64) error {
	const century = 100 * 366 * 24 * 3600
	if !(value >= 0 && m.seconds+value <= century) {
		return fmt.Errorf("%g is not a duration", value)
	}
	m.seconds += value
	return nil
}

// parseSample reads what follows a metric's name: labels in braces, a value, maybe a time, which is not looked at.
func parseSample(text string) (labels map[string]string, value float64, err error) {
	if strings.HasPrefix(text, "{") {
		if labels, text, err = parseLabels(text[1:]); err != nil {
			return nil, 0, err
		}
	}
	words := strings.Fields(text)
	if len(words) < 1 || len(words) > 2 {
		return nil, 0, errors.New("it has no value")
	}
	value, err = strconv.ParseFloat(words[0], 64)
	return labels, value, err
}

// parseLabels reads name="value" pairs up to the closing brace. Values have the escapes \\, \" and \n.
func parseLabels(text string) (labels map[string]string, rest string, err error) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", ")
		if rest, closed := strings.CutPrefix(text, "}"); closed {
			return labels, rest, nil
		}
		name, after, found := strings.Cut(text, `="`)
		end := closingQuote(after)
		if !found || end < 0 {
			return nil, "", errors.New("its labels are not understood")
		}
		labels[name] = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(after[:end])
		text = after[end+1:]
	}
}

func closingQuote(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
