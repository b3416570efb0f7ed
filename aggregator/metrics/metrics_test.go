package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"offramp.dev/offramp/aggregator/audit"
	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/metrics"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func scrape(t *testing.T, sources metrics.Sources) string {
	t.Helper()
	server := httptest.NewServer(metrics.Handler(sources))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readiness is a fleet of seven nodes, with numbers that tell which one went where.
func readiness() *offrampv1.GetReadinessResponse {
	accepted := &offrampv1.Acceptance{Reason: "known"}
	return &offrampv1.GetReadinessResponse{
		Ready: 2, Blocked: 1, Unknown: 4, WithLeftovers: 3, NeverSeen: 9,
		Phases: []*offrampv1.PhaseCount{
			{Phase: offrampv1.Phase_PHASE_ON_IPVS, Nodes: 5}, {Phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY, Nodes: 2},
		},
		Findings: []*offrampv1.FindingCount{{Id: "kernel-too-old", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Nodes: 6, Undecided: 1, Accepted: 2,
			NodeSamples: []string{"worker-1"}}},
		ClusterFindings: []*offrampv1.Finding{
			{Id: "mode-not-explicit", Severity: offrampv1.Severity_SEVERITY_WARNING}, {Id: "mode-not-explicit", Severity: offrampv1.Severity_SEVERITY_INFO},
			{Id: "address-clash", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Accepted: accepted},
		},
		Leftovers: &offrampv1.Leftovers{
			VirtualServers: 1, Links: 2, LinkAddresses: 3, Ipsets: 4, IpsetEntries: 5, Chains: 6, Jumps: 7, Tables: 8,
		},
		Pools: []*offrampv1.GroupCount{
			{Name: "", Phases: []*offrampv1.PhaseCount{{Phase: offrampv1.Phase_PHASE_SWITCHED_DIRTY, Nodes: 2}}},
			{Name: "blue", Phases: []*offrampv1.PhaseCount{{Phase: offrampv1.Phase_PHASE_ON_IPVS, Nodes: 5}}},
		},
		Unread: []*offrampv1.ClusterSource{{Kind: "pods"}, {Kind: "services"}},
	}
}

func all() metrics.Sources {
	orders := metrics.NewOrders()
	for _, record := range []audit.Record{
		{Event: "order", Method: "/offramp.v1.CleanupService/Apply", Outcome: "failed", Node: "worker-1"},
		{Event: "order", Method: "/offramp.v1.CleanupService/Apply", Outcome: "failed"},
		{Event: "order", Method: "/offramp.v1.CleanupService/Apply", Outcome: "DEADLINE_EXCEEDED"},
		{Event: "order", Method: "/offramp.v1.CleanupService/Plan", Outcome: "done"},
		{Event: "order", Method: "/offramp.v1.CleanupService/Invented", Outcome: "done"},
		{Event: "refused", Method: "/offramp.v1.CleanupService/Apply", Outcome: "PERMISSION_DENIED"},
		{Event: "acceptance", Method: "/offramp.v1.FleetService/AcceptFinding", Outcome: "done"},
	} {
		orders.Written(record)
	}
	return metrics.Sources{
		Readiness: readiness, Orders: orders, Version: "v0.3.0",
		Figures: func() fleet.Figures {
			return fleet.Figures{Connected: 7, Stuck: 1, Modes: map[offrampv1.ProxyMode]uint64{
				offrampv1.ProxyMode_PROXY_MODE_IPVS: 5, offrampv1.ProxyMode_PROXY_MODE_NFTABLES: 2,
			}}
		},
		ServerVersion:   func() string { return "v1.38.4" },
		ServerExpiry:    func() time.Time { return time.Unix(1_800_000_000, 0) },
		AuthorityExpiry: func() time.Time { return time.Unix(1_900_000_000, 0) },
		Refusals:        func() int64 { return 7 },
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

// testdata/exposition.txt was written by hand: every name, unit, help, label and value.
func TestExposition(t *testing.T) {
	want, err := os.ReadFile("testdata/exposition.txt")
	if err != nil {
		t.Fatal(err)
	}
	text := scrape(t, all())
	if diff := cmp.Diff(string(want), own(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\nprocess_start_time_seconds ") {
		t.Error("the Go runtime and the process are missing")
	}
	if strings.Contains(text, "worker-1") {
		t.Error("a node is in a label")
	}
}

// However many scrape, a few sums of the fleet are made at a time; the others are told to come again.
func TestScrapesAtOnce(t *testing.T) {
	held, sums := make(chan struct{}), make(chan struct{}, 100)
	handler := metrics.Handler(metrics.Sources{Readiness: func() *offrampv1.GetReadinessResponse {
		sums <- struct{}{}
		<-held
		return readiness()
	}})
	codes := make(chan int)
	for range 20 {
		go func() {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			codes <- answer.Code
		}()
	}
	for range 12 {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("code %d", code)
		}
	}
	close(held)
	for range 8 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("code %d", code)
		}
	}
	if len(sums) != 8 {
		t.Errorf("%d sums", len(sums))
	}
}

func TestLint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, all()))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v: %v", err, problems)
	}
}

// What is not known has no series: an authority that is not there does not expire, and an unknown version has no deadline.
func TestWhatIsNotKnown(t *testing.T) {
	if text := own(scrape(t, metrics.Sources{})); text != "" {
		t.Errorf("told: %s", text)
	}
	never := func() time.Time { return time.Time{} }
	text := own(scrape(t, metrics.Sources{ServerExpiry: never, AuthorityExpiry: never, ServerVersion: func() string { return "" }}))
	if text != "" {
		t.Errorf("told: %s", text)
	}
}

// docs/metrics.md lists every metric, and none that is not there.
func TestDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`offramp_aggregator_[a-z_]+`)
	there, told := map[string]bool{}, map[string]bool{}
	for _, found := range name.FindAllString(own(scrape(t, all())), -1) {
		there[found] = true
	}
	for _, found := range name.FindAllString(string(document), -1) {
		told[found] = true
	}
	if diff := cmp.Diff(there, told); diff != "" {
		t.Errorf("-served +documented:\n%s", diff)
	}
}
