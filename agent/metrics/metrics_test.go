package metrics_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/internal/scrape"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// reading is a node in nftables mode with ipsets left and an IPVS table that nobody could read; IPv6 never synced.
func reading() *offrampv1.NodeFacts {
	present := func(content *offrampv1.SectionStable) *offrampv1.SectionStable {
		content.State = offrampv1.SectionState_SECTION_STATE_PRESENT
		return content
	}
	return &offrampv1.NodeFacts{Node: "worker-1", Sections: []*offrampv1.Section{
		{Kind: offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY, Stable: present(&offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{
			KubeProxy: &offrampv1.KubeProxyFacts{RunningMode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES},
		}}), Volatile: &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: &offrampv1.KubeProxyVolatile{
			HealthStatus: http.StatusServiceUnavailable, StartedAt: timestamppb.New(time.Unix(1800000070, 0)), Syncs: []*offrampv1.FamilySync{
				{Family: offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4, LastSync: timestamppb.New(time.Unix(1800000090, 25e7)),
					LastQueued: timestamppb.New(time.Unix(1800000080, 0)), Failures: 3},
				{Family: offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6, LastQueued: timestamppb.New(time.Unix(1800000080, 0))},
			},
		}}}},
		{Kind: offrampv1.SectionKind_SECTION_KIND_IPVS, Stable: &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE}},
		{Kind: offrampv1.SectionKind_SECTION_KIND_IPSETS, Stable: present(&offrampv1.SectionStable{Content: &offrampv1.SectionStable_Ipsets{
			Ipsets: &offrampv1.IpsetsFacts{Sets: 18, Owners: []*offrampv1.OwnerCount{{Owner: "foreign:docker", Count: 1}, {Owner: "kube-proxy/ipvs", Count: 17}}},
		}}), Volatile: &offrampv1.SectionVolatile{ReadTook: durationpb.New(250 * time.Millisecond)}},
	}}
}

func filled() *metrics.Metrics {
	m := metrics.New()
	m.Finished(&audit.Entry{Method: audit.MethodApply, Outcome: audit.OutcomeRefused, Time: time.Unix(1800000000, 0), Seconds: 1.5, Remaining: 7,
		Node: "worker-1", Caller: "alice", BrokenProbes: []string{"tcp 10.96.0.1:443"}})
	m.Finished(&audit.Entry{Method: audit.MethodRestore, Outcome: audit.OutcomeDone, Time: time.Unix(1800000001, 0), Seconds: 2})
	m.Scanned(reading(), time.Unix(1800000100, 5e8), 3*time.Second)
	return m
}

// testdata/exposition.txt was written by hand: every name, unit, help, label and value.
func check(t *testing.T, text string) {
	t.Helper()
	want, err := os.ReadFile("testdata/exposition.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), own(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, never := range []string{"worker-1", "alice", "10.96"} {
		if strings.Contains(text, never) {
			t.Errorf("%s is in a label", never)
		}
	}
}

func own(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "offramp_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestLint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "offramp.prom")
	if err := filled().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if problems, err := promlint.New(file).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v: %v", err, problems)
	}
}

// Before the first reading nothing is told of the node, and nothing of a kube-proxy that said nothing.
func TestNothingKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "offramp.prom")
	m := metrics.New()
	tell := func() string {
		if err := m.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text := tell(); strings.Contains(text, "running_mode") || strings.Contains(text, "leftovers") || strings.Contains(text, "scan_last_timestamp") {
		t.Errorf("told before a reading: %s", text)
	}
	m.Scanned(&offrampv1.NodeFacts{}, time.Unix(1800000000, 0), time.Second)
	text := tell()
	if strings.Contains(text, "kube_proxy") || !strings.Contains(text, `running_mode{mode="unknown"} 1`) || !strings.Contains(text, "leftovers_undecided 1") {
		t.Errorf("told of an empty reading: %s", text)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "offramp.prom")
	if err := filled().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "\n"+string(text))
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- scrape.Serve(ctx, listener, scrape.Handlers{Metrics: filled().Handler()}) }()
	get := func(path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	code, text := get("/metrics")
	check(t, text)
	if code != http.StatusOK || !strings.Contains(text, "\ngo_goroutines ") {
		t.Errorf("%d: %s", code, text)
	}
	if code, _ := get("/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("something else is served: %d", code)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// docs/metrics.md lists every metric, and none that is not there.
func TestDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "offramp.prom")
	if err := filled().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`offramp_agent_[a-z_]+`)
	there, told := map[string]bool{}, map[string]bool{}
	for _, found := range name.FindAllString(string(text), -1) {
		there[found] = true
	}
	for _, found := range name.FindAllString(string(document), -1) {
		told[found] = true
		if !there[found] {
			t.Errorf("%s is in the document and not served", found)
		}
	}
	for found := range there {
		if !told[found] {
			t.Errorf("%s is served and not in the document", found)
		}
	}
}
