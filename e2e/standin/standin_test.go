package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func folder() fstest.MapFS {
	return fstest.MapFS{
		"proxyMode.txt": {Data: []byte("ipvs")},
		"healthz.json": {Data: []byte(`{"lastUpdated":"2026-11-30T10:00:00Z","currentTime":"2026-11-30T10:00:10Z","nodeEligible":true,"healthy":false,` +
			`"status":{"IPv4":{"lastUpdated":"2026-11-30T09:59:50Z","healthy":true},"IPv6":{"lastUpdated":"2026-11-30T09:00:10Z","healthy":false}}}`)},
		"metrics.txt": {Data: []byte(`# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds x
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.7960327905e+09
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 0
kubeproxy_sync_proxy_rules_iptables_restore_failures_total 3
process_start_time_seconds 1.79603e+09
`)},
	}
}

func TestTimesKeepTheirDistanceToNow(t *testing.T) {
	r, err := load(folder())
	if err != nil {
		t.Fatal(err)
	}
	// One day and one minute after the capture.
	got := r.healthAt(at(t, "2026-12-01T10:01:10Z"))
	eligible := true
	want := health{
		LastUpdated: at(t, "2026-12-01T10:01:00Z"), CurrentTime: at(t, "2026-12-01T10:01:10Z"), NodeEligible: &eligible,
		Status: map[string]familyHealth{
			"IPv4": {LastUpdated: at(t, "2026-12-01T10:00:50Z"), Healthy: true},
			"IPv6": {LastUpdated: at(t, "2026-12-01T09:01:10Z")},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMetricsMove(t *testing.T) {
	r, err := load(folder())
	if err != nil {
		t.Fatal(err)
	}
	r.started = time.Unix(1796100000, 500_000_000)
	got := r.metricsAt(at(t, "2026-11-30T10:00:20.25Z")) // 10.25 s after the capture
	want := `# HELP kubeproxy_sync_proxy_rules_last_timestamp_seconds x
kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1.79603280075e+09
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 0
kubeproxy_sync_proxy_rules_iptables_restore_failures_total 3
process_start_time_seconds 1.7961000005e+09
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLoadRefusesWhatCannotBeServed(t *testing.T) {
	for name, spoil := range map[string]func(fstest.MapFS){
		"no mode":         func(f fstest.MapFS) { delete(f, "proxyMode.txt") },
		"no metrics":      func(f fstest.MapFS) { delete(f, "metrics.txt") },
		"no health":       func(f fstest.MapFS) { delete(f, "healthz.json") },
		"broken health":   func(f fstest.MapFS) { f["healthz.json"].Data = []byte("{") },
		"health, no time": func(f fstest.MapFS) { f["healthz.json"].Data = []byte("{}") },
	} {
		f := folder()
		spoil(f)
		if _, err := load(f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func get(t *testing.T, handler http.Handler, target string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	marked(handler).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.Header().Get("Server"), "stand-in") {
		t.Errorf("%s does not say that it is a stand-in", target)
	}
	return w.Code, string(body)
}

func TestEveryCaptureIsServed(t *testing.T) {
	for _, name := range captures.Names() {
		t.Run(name, func(t *testing.T) {
			dir, err := fs.Sub(captures.FS, path.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			r, err := load(dir)
			if name == "after-kube-proxy-cleanup" {
				if err == nil {
					t.Error("served, though no kube-proxy ran")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			serves(t, r)
		})
	}
}

func serves(t *testing.T, r recording) {
	t.Helper()
	now := func() time.Time { return time.Unix(1800000000, 0) }
	if status, mode := get(t, metricsHandler(r, now), "/proxyMode"); status != http.StatusOK || mode != r.mode {
		t.Errorf("/proxyMode: %d %q", status, mode)
	}
	if status, text := get(t, metricsHandler(r, now), "/metrics"); status != http.StatusOK || !strings.Contains(text, "_timestamp_seconds{ip_family=\"IPv4\"} 1.7999999") {
		t.Errorf("/metrics: %d, no time shortly before now", status)
	}
	_, text := get(t, metricsHandler(r, now), "/configz")
	var config map[string]struct{ Kind, Mode string }
	if err := json.Unmarshal([]byte(text), &config); err != nil || config["kubeproxy.config.k8s.io"].Mode != r.mode {
		t.Errorf("/configz: %v %+v", err, config)
	}
	status, text := get(t, healthHandler(r, now), "/healthz")
	var h health
	if err := json.Unmarshal([]byte(text), &h); err != nil || !h.CurrentTime.Equal(now()) {
		t.Errorf("/healthz: %v, current time %s", err, h.CurrentTime)
	}
	if (status == http.StatusOK) != h.Healthy {
		t.Errorf("/healthz: status %d with healthy %v", status, h.Healthy)
	}
}
