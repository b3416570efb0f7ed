package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRunHandsOverItsSettings(t *testing.T) {
	s := newStage()
	got := s.call(t.Context(), map[string]string{"OFFRAMP_AGGREGATOR": "a:8443,b:8443", "NODE_NAME": "worker-7"}, "run", "--scan-interval", "5s")
	got.want(t, 0, "", "node=worker-7")
	r := s.reporting
	if !slices.Equal(r.aggregators, []string{"a:8443", "b:8443"}) || r.scanInterval != 5*time.Second || r.config.Node != "worker-7" || !r.config.History {
		t.Errorf("got %+v", r)
	}
	if protocol := r.credentials.Info().SecurityProtocol; protocol != "tls" {
		t.Errorf("without a word about it, the connection is %s", protocol)
	}
	s.call(t.Context(), nil, "run", "--aggregator", "a:1", "--aggregator", "b:1", "--insecure-plaintext").want(t, 0, "", "plaintext=true")
	if protocol := s.reporting.credentials.Info().SecurityProtocol; protocol != "insecure" || len(s.reporting.aggregators) != 2 {
		t.Errorf("got %s, %q", protocol, s.reporting.aggregators)
	}
}

func TestRunTellsAFailure(t *testing.T) {
	s := newStage()
	s.reportErr = errors.New("all is lost")
	s.call(t.Context(), nil, "run", "--aggregator", "a:1").want(t, 1, "", "offramp-agent: all is lost")
}

// SIGTERM ends the context; that is a clean end.
func TestRunStopsCleanly(t *testing.T) {
	s := newStage()
	s.untilStopped = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.call(ctx, nil, "run", "--aggregator", "a:1", "--log-format", "json").want(t, 0, "", `"msg":"stopped"`)
}

// The real stream, with nobody to talk to: it goes on trying, and ends when told to.
func TestRunWithoutAnAggregator(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	args := []string{"run", "--aggregator", "127.0.0.1:1", "--insecure-plaintext", "--node", "worker-1", "--state-dir", ""}
	code := run(ctx, args, func(string) (string, bool) { return "", false }, &stdout, &stderr)
	if code != 0 || stdout.Len() != 0 || !strings.Contains(stderr.String(), "msg=stopped") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}

func TestLog(t *testing.T) {
	for _, tt := range []struct{ format, level, want string }{
		{"text", "info", "level=INFO"}, {"json", "info", `"level":"INFO"`}, {"text", "error", ""}, {"text", "nonsense", "level=INFO"},
	} {
		var out bytes.Buffer
		newLog(&out, tt.format, tt.level).Info("hello")
		if tt.want == "" && out.Len() > 0 || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%+v: %q", tt, out.String())
		}
	}
}

func TestCheckNode(t *testing.T) {
	for _, name := range []string{"a", "worker-1", "ip-10-0-1-23.eu-west-1.compute.internal", "0", strings.Repeat("a", 253)} {
		if err := checkNode(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "A", "a..b", ".a", "a_b", "a b", "a\n", strings.Repeat("a", 254)} {
		if err := checkNode(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

// A token that was asked for travels over TLS, or not at all.
func TestRunTokenFile(t *testing.T) {
	s := newStage()
	s.call(t.Context(), nil, "run", "--aggregator", "a:1", "--token-file", "/some/token").want(t, 0, "", "token=true")
	if s.reporting.token == nil {
		t.Error("the token is left out")
	}
	s.call(t.Context(), nil, "run", "--aggregator", "a:1").want(t, 0, "", "token=false")
	s.call(t.Context(), nil, "run", "--aggregator", "a:1", "--insecure-plaintext", "--token-file", "/some/token").want(t, 1, "", "in the clear")
}
