package metrics_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

func TestWhatIsTold(t *testing.T) {
	text := scrape(t, metrics.Sources{
		Readiness: func() *offrampv1.GetReadinessResponse {
			return &offrampv1.GetReadinessResponse{
				Ready: 2, Blocked: 1, Unknown: 4, WithLeftovers: 3,
				Phases:   []*offrampv1.PhaseCount{{Phase: offrampv1.Phase_PHASE_ON_IPVS, Nodes: 5}},
				Findings: []*offrampv1.FindingCount{{Id: "kernel-too-old", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Nodes: 1}},
			}
		},
		ServerExpiry:    func() time.Time { return time.Unix(1_800_000_000, 0) },
		AuthorityExpiry: func() time.Time { return time.Time{} },
		Refusals:        func() int64 { return 7 },
	})
	for _, want := range []string{
		`offramp_aggregator_nodes{phase="on-ipvs"} 5`, `offramp_aggregator_nodes{phase="silent"} 0`, `offramp_aggregator_nodes_ready{verdict="unknown"} 4`,
		`offramp_aggregator_nodes_with_leftovers 3`, `offramp_aggregator_nodes_with_finding{finding="kernel-too-old",severity="blocker"} 1`,
		`offramp_aggregator_certificate_expiry_timestamp_seconds{certificate="server"} 1.8e+09`, `offramp_aggregator_refused_calls_total 7`, "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(text, `certificate="authority"`) {
		t.Error("an authority that is not there expires")
	}
}

func TestWithoutSourcesNothingIsTold(t *testing.T) {
	if text := scrape(t, metrics.Sources{}); strings.Contains(text, "offramp_aggregator_") {
		t.Errorf("told: %s", text)
	}
}
