package collect

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/e2e/captures"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	familyAny  = offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED
	familyIPv4 = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
	familyIPv6 = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
)

func at(seconds, millis int64) *timestamppb.Timestamp {
	return timestamppb.New(time.UnixMilli(seconds*1000 + millis))
}

func TestParseMetricsOfCaptures(t *testing.T) {
	// By hand from the files, rounded to milliseconds.
	for name, want := range map[string]map[offrampv1.AddressFamily]*offrampv1.FamilySync{
		"ipvs": {
			familyIPv4: {Family: familyIPv4, LastSync: at(1796055452, 47), LastQueued: at(1796055416, 487)},
			familyIPv6: {Family: familyIPv6, LastSync: at(1796055458, 25), LastQueued: at(1796055416, 487)},
		},
		"nftables": {
			familyIPv4: {Family: familyIPv4, LastSync: at(1796055601, 711), LastQueued: at(1796055597, 619)},
			familyIPv6: {Family: familyIPv6, LastSync: at(1796055602, 706), LastQueued: at(1796055597, 619)},
		},
		// Its first sync failed for good: there is no last sync.
		"iptables-sync-failed": {
			familyIPv4: {Family: familyIPv4, LastQueued: at(1796052628, 736), Failures: 1},
			familyIPv6: {Family: familyIPv6, LastQueued: at(1796052628, 736), Failures: 1},
		},
	} {
		metrics, err := parseMetrics(strings.NewReader(readCapture(t, name, "metrics.txt")))
		if err != nil {
			t.Fatal(err)
		}
		if metrics.version != "" {
			t.Errorf("%s: version %q; that kube-proxy was built without kubernetes_build_info", name, metrics.version)
		}
		for _, sync := range metrics.syncs {
			for _, stamp := range []*timestamppb.Timestamp{sync.GetLastSync(), sync.GetLastQueued()} {
				if stamp != nil {
					stamp.Nanos = (stamp.GetNanos() + 500_000) / 1_000_000 * 1_000_000
				}
			}
		}
		if diff := cmp.Diff(want, metrics.syncs, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseMetricsBeforeFamilies(t *testing.T) {
	metrics, err := parseMetrics(strings.NewReader(`# HELP x
kubernetes_build_info{build_date="2023",git_version="v1.28.15",go_version="go1.22"} 1
kubeproxy_sync_proxy_rules_last_timestamp_seconds 1.7e+09
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 0
kubeproxy_sync_proxy_rules_iptables_restore_failures_total 3
kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total 2 1700000000000
kubeproxy_sync_proxy_rules_nftables_sync_failures_total 1
kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total 9
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[offrampv1.AddressFamily]*offrampv1.FamilySync{familyAny: {LastSync: at(1700000000, 0), Failures: 6}}
	if diff := cmp.Diff(want, metrics.syncs, protocmp.Transform()); diff != "" || metrics.version != "v1.28.15" {
		t.Errorf("version %q (-want +got):\n%s", metrics.version, diff)
	}
}

func TestParseMetricsRefuses(t *testing.T) {
	const name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	for what, text := range map[string]string{
		"nothing":                "",
		"a web page":             "<html>\n<body>hello</body>\n",
		"somebody else's":        "node_load1 0.4\n",
		"no value":               name + "\n",
		"a word":                 name + " soon\n",
		"not a number":           name + " NaN\n",
		"a time without end":     name + " +Inf\n",
		"a time before time":     name + " -5\n",
		"three words":            name + " 1 2 3\n",
		"an open brace":          name + `{ip_family="IPv4" 1` + "\n",
		"an open quote":          name + `{ip_family="IPv4} 1` + "\n",
		"labels without quotes":  name + "{ip_family=IPv4} 1\n",
		"another family":         name + `{ip_family="IPv5"} 1` + "\n",
		"a negative count":       metricRestores + " -1\n",
		"a count beyond numbers": metricRestores + " 1e300\n",
		"a line without end":     name + strings.Repeat(" ", 1<<17) + "1\n",
	} {
		if metrics, err := parseMetrics(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read as %+v", what, metrics)
		}
	}
}

func TestParseLabels(t *testing.T) {
	labels, rest, err := parseLabels(`a="1", b="say \"x\\\" \n",c="}{,"} 5`)
	want := map[string]string{"a": "1", "b": "say \"x\\\" \n", "c": "}{,"}
	if diff := cmp.Diff(want, labels); err != nil || rest != " 5" || diff != "" {
		t.Errorf("rest %q, %v\n%s", rest, err, diff)
	}
}

func FuzzParseMetrics(f *testing.F) {
	for _, name := range captures.Names() {
		if text, err := captures.Read(name, "metrics.txt"); err == nil {
			lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
				return !strings.HasPrefix(line, "kubeproxy_sync_proxy_rules_last") && !strings.HasPrefix(line, metricBuild)
			})
			f.Add(strings.Join(lines, "\n"))
		}
	}
	f.Add(metricRestores + `{ip_family="IPv6",x="\\\"\n"} 7 12` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		metrics, err := parseMetrics(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, sync := range metrics.syncs {
			if err := errors.Join(valid(sync.GetLastSync()), valid(sync.GetLastQueued())); err != nil {
				t.Error(err)
			}
		}
		if strings.ToValidUTF8(metrics.version, "") != metrics.version || len(metrics.version) > maxVersion {
			t.Errorf("version %q cannot be sent", metrics.version)
		}
	})
}

func valid(stamp *timestamppb.Timestamp) error {
	if stamp == nil {
		return nil
	}
	return stamp.CheckValid()
}
