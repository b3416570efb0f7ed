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

	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/internal/scrape"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func filled() *metrics.Metrics {
	m := metrics.New()
	m.Finished(&audit.Entry{Method: audit.MethodApply, Outcome: audit.OutcomeRefused, Time: time.Unix(1800000000, 0), Seconds: 1.5, Remaining: 7,
		Node: "worker-1", Caller: "alice", BrokenProbes: []string{"tcp 10.96.0.1:443"}})
	m.Finished(&audit.Entry{Method: audit.MethodRestore, Outcome: audit.OutcomeDone, Time: time.Unix(1800000001, 0), Seconds: 2})
	m.Scanned(&offrampv1.NodeFacts{Sections: []*offrampv1.Section{
		{Kind: offrampv1.SectionKind_SECTION_KIND_IPVS, Stable: &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE}},
		{Kind: offrampv1.SectionKind_SECTION_KIND_IPSETS, Stable: &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_ABSENT},
			Volatile: &offrampv1.SectionVolatile{ReadTook: durationpb.New(250 * time.Millisecond)}},
	}}, 3*time.Second)
	return m
}

func expected() []string {
	return []string{
		`offramp_agent_cleanups_total{method="apply",outcome="refused"} 1`,
		`offramp_agent_cleanups_total{method="apply",outcome="done"} 0`,
		`offramp_agent_cleanups_total{method="restore",outcome="done"} 1`,
		`offramp_agent_cleanup_last_duration_seconds{method="apply"} 1.5`,
		`offramp_agent_cleanup_last_timestamp_seconds{method="restore"} 1.800000001e+09`,
		`offramp_agent_cleanup_remaining_operations 7`,
		`offramp_agent_cleanup_broken_probes 1`,
		`offramp_agent_scans_total 1`,
		`offramp_agent_scan_last_duration_seconds 3`,
		`offramp_agent_section_read_duration_seconds{section="ipsets"} 0.25`,
		`offramp_agent_section_unreadable{section="ipvs"} 1`,
		`offramp_agent_section_unreadable{section="ipsets"} 0`,
	}
}

func check(t *testing.T, text string) {
	t.Helper()
	for _, line := range expected() {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	for _, never := range []string{"worker-1", "alice", "10.96"} {
		if strings.Contains(text, never) {
			t.Errorf("%s is in a label", never)
		}
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

// docs/audit.md lists every metric, and none that is not there.
func TestDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/audit.md")
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
