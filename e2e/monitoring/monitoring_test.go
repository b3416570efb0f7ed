package monitoring_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/monitoring"
)

var update = flag.Bool("update", false, "write prometheus-rule.yaml anew")

// promtool is the real one, without the service discovery that takes most of its build.
func promtool(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "promtool")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "remove_all_sd", "-o", path, "github.com/prometheus/prometheus/cmd/promtool")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return path
}

func TestPromtool(t *testing.T) {
	tool := promtool(t)
	for _, arguments := range [][]string{
		{"check", "rules", "alerts.yaml"},
		{"test", "rules", "alerts_test.yaml", "alerts_fortnight_test.yaml"},
	} {
		run := exec.CommandContext(t.Context(), tool, arguments...)
		run.Dir = monitoring.Folder
		if output, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", arguments, err, output)
		}
	}
	for _, program := range []string{"aggregator", "agent"} {
		text, err := os.ReadFile("../../" + program + "/metrics/testdata/exposition.txt")
		if err != nil {
			t.Fatal(err)
		}
		check := exec.CommandContext(t.Context(), tool, "check", "metrics")
		check.Stdin = bytes.NewReader(text)
		if output, err := check.CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("check metrics of the %s: %v: %s", program, err, output)
		}
	}
}

func rules(t *testing.T) []monitoring.Rule {
	t.Helper()
	rules, err := monitoring.ReadRules()
	if err != nil || len(rules.All()) < 10 {
		t.Fatalf("%d rules, %v", len(rules.All()), err)
	}
	return rules.All()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each alert says what to do, in a section of docs/alerts.md that is there, and has a test in which it fires and one in which it does not.
func TestEveryAlert(t *testing.T) {
	document := read(t, "../../docs/alerts.md")
	tests := read(t, monitoring.Folder+"alerts_test.yaml") + read(t, monitoring.Folder+"alerts_fortnight_test.yaml")
	for _, rule := range rules(t) {
		if rule.Alert == "" {
			continue
		}
		_, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "docs/alerts.md#")
		if anchor != strings.ToLower(rule.Alert) || !strings.Contains(document, "\n## "+rule.Alert+"\n") {
			t.Errorf("%s: runbook %q, and no section of docs/alerts.md", rule.Alert, rule.Annotations["runbook_url"])
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%s lacks words or a severity", rule.Alert)
		}
		if !strings.Contains(tests, "- alertname: "+rule.Alert+"\n") {
			t.Errorf("no test has %s fire", rule.Alert)
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^## (Offramp\w+)$`).FindAllStringSubmatch(document, -1) {
		if !slices.ContainsFunc(rules(t), func(rule monitoring.Rule) bool { return rule.Alert == section[1] }) {
			t.Errorf("docs/alerts.md tells of %s, which is no alert", section[1])
		}
	}
}

func recorded(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, rule := range rules(t) {
		names = append(names, rule.Record)
	}
	return names
}

// What a rule asks about is served, and a finding that it names is one that readiness knows.
func TestRulesUseWhatIsServed(t *testing.T) {
	served, err := monitoring.Served()
	if err != nil {
		t.Fatal(err)
	}
	findings := read(t, "../../docs/findings.md")
	for _, rule := range rules(t) {
		for _, problem := range monitoring.Check(rule.Expr, served, recorded(t)) {
			t.Errorf("%s%s: %s", rule.Alert, rule.Record, problem)
		}
		for _, id := range regexp.MustCompile(`finding="([^"]+)"`).FindAllStringSubmatch(rule.Expr, -1) {
			if !strings.Contains(findings, "\n## "+id[1]+"\n") {
				t.Errorf("%s: there is no finding %s", rule.Alert, id[1])
			}
		}
	}
}

func TestPrometheusRule(t *testing.T) {
	want, err := monitoring.PrometheusRule()
	if err != nil {
		t.Fatal(err)
	}
	path := monitoring.Folder + "prometheus-rule.yaml"
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, path) != string(want) {
		t.Error("prometheus-rule.yaml is not what alerts.yaml says: run this test with -update")
	}
}

// The dashboard runs anywhere: every expression parses and asks for what is served, and the data source is chosen, not written down.
func TestDashboard(t *testing.T) {
	served, err := monitoring.Served()
	if err != nil {
		t.Fatal(err)
	}
	dashboard, err := monitoring.ReadDashboard()
	if err != nil || len(dashboard.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(dashboard.Panels), err)
	}
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || len(panel.Targets) == 0 {
			t.Errorf("%s: id %d twice, or nothing to show", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		chosen(t, panel.Title, panel.Datasource)
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := places[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %s, or outside", panel.Title, other)
				}
				places[[2]int{x, y}] = panel.Title
			}
		}
		for _, target := range panel.Targets {
			chosen(t, panel.Title, target.Datasource)
			for _, problem := range monitoring.Check(target.Expr, served, recorded(t)) {
				t.Errorf("%s: %s", panel.Title, problem)
			}
		}
	}
}

func chosen(t *testing.T, title string, datasource json.RawMessage) {
	t.Helper()
	var source struct{ UID string }
	if err := json.Unmarshal(datasource, &source); err != nil || source.UID != "${datasource}" {
		t.Errorf("%s: data source %q, %v", title, source.UID, err)
	}
}

// The check itself finds what is wrong.
func TestCheck(t *testing.T) {
	served := map[string][]string{"a_total": {"kind"}}
	for expr, want := range map[string]int{
		`rate(a_total{kind="x"}[5m])`: 0, `a_total{other="x"}`: 1, `b_total`: 1, `sum(`: 1, `recorded:sum`: 0, `{__name__=~"a_.*"}`: 0, `{__name__=~"c_.*"}`: 1,
	} {
		if got := monitoring.Check(expr, served, []string{"recorded:sum"}); len(got) != want {
			t.Errorf("%s: %v", expr, got)
		}
	}
}
