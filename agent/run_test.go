package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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

// Whoever starts within an hour has not begun after 50 ms but once in 72,000 tries, and stops cleanly meanwhile.
func TestRunStartsWithin(t *testing.T) {
	s := newStage()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.call(ctx, nil, "run", "--aggregator", "a:1", "--start-within", "1h").want(t, 0, "", "msg=stopped")
	if s.reporting != nil {
		t.Error("it began at once")
	}
	s.call(t.Context(), nil, "run", "--aggregator", "a:1", "--start-within", "1ms").want(t, 0, "", "msg=reporting")
	if s.reporting == nil {
		t.Error("it never began")
	}
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

// What the node remembers outlives the agent, and nothing but that is written for it.
func TestRunRemembers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	file := filepath.Join(dir, "history.json")
	remembered := func() string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan int, 1)
		var stdout, stderr bytes.Buffer
		args := []string{"run", "--aggregator", "127.0.0.1:1", "--insecure-plaintext", "--node", "worker-1", "--state-dir", dir}
		before, _ := os.Stat(file)
		go func() { ended <- run(ctx, args, func(string) (string, bool) { return "", false }, &stdout, &stderr) }()
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if now, err := os.Stat(file); err == nil && (before == nil || !os.SameFile(before, now)) {
				break
			}
		}
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
		var kept struct {
			History struct{ Since string }
		}
		content, err := os.ReadFile(file)
		if err := errors.Join(err, json.Unmarshal(content, &kept)); err != nil {
			t.Fatal(err, stderr.String())
		}
		return kept.History.Since
	}
	first, second := remembered(), remembered()
	if first == "" || first != second {
		t.Errorf("remembers since %q, after a restart since %q", first, second)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the state folder has %v, %v", entries, err)
	}
}

// The addresses of an aggregator's name outlive the agent.
func TestRunRemembersAggregators(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var stdout, stderr bytes.Buffer
	args := []string{"run", "--aggregator", "localhost:1", "--insecure-plaintext", "--node", "worker-1", "--state-dir", dir}
	go func() { ended <- run(ctx, args, func(string) (string, bool) { return "", false }, &stdout, &stderr) }()
	var content []byte
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && len(content) == 0; time.Sleep(20 * time.Millisecond) {
		content, _ = os.ReadFile(filepath.Join(dir, "aggregators.json"))
	}
	cancel()
	if code := <-ended; code != 0 || !strings.Contains(string(content), `"localhost:1":["127.0.0.1:1"`) {
		t.Errorf("exit code %d, remembered %q: %s", code, content, stderr.String())
	}
}

func TestRunRefusesNonsenseForAggregators(t *testing.T) {
	for want, aggregators := range map[string]string{
		"named twice": "a:1,b:1,a:1", "host:port": "a", "neither an address nor a DNS name": "10.0.0.300:8443", "no number": "a:https",
	} {
		newStage().call(t.Context(), nil, "run", "--aggregator", aggregators).want(t, 1, "", want)
	}
}
