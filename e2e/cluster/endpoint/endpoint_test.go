package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster/traffic"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]target{
		"a=10.0.0.1:80":        {label: "a", network: "tcp", address: "10.0.0.1:80"},
		"a/b=udp:[fd00::1]:53": {label: "a/b", network: "udp", address: "[fd00::1]:53"},
		"a=long:10.0.0.1:80":   {label: "a", network: "tcp", address: "10.0.0.1:80", long: true},
	} {
		if got, err := parseTarget(text); err != nil || got != want {
			t.Errorf("%s is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10.0.0.1:80", "a=10.0.0.1", "a=fd00::1:80:90"} {
		if got, err := parseTarget(text); err == nil {
			t.Errorf("%q was taken for %+v", text, got)
		}
	}
}

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"": nil, "refused": fmt.Errorf("dial: %w", syscall.ECONNREFUSED), "reset": syscall.ECONNRESET,
		"unreachable": syscall.EHOSTUNREACH, "timeout": context.DeadlineExceeded, "something": fmt.Errorf("something"),
	} {
		if got := reason(err); got != want {
			t.Errorf("reason of %v is %q, want %q", err, got, want)
		}
	}
}

// answering serves names on a loopback port until the test ends.
func answering(t *testing.T, name string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = serveStreams(listener, name)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener
}

func loadFor(t *testing.T, d time.Duration, targets ...string) []traffic.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	reports, err := load(ctx, targets, 10*time.Millisecond, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return reports
}

func TestLoadCountsAnswersAndFailures(t *testing.T) {
	up, down := answering(t, "me"), answering(t, "gone")
	nobody := down.Addr().String()
	if err := down.Close(); err != nil {
		t.Fatal(err)
	}
	reports := loadFor(t, 300*time.Millisecond, "up="+up.Addr().String(), "down="+nobody, "long=long:"+up.Addr().String())
	if r := reports[0]; r.Failures != 0 || r.Requests < 5 || r.Answers["me"] != r.Requests {
		t.Errorf("a listener that is up: %+v", r)
	}
	if r := reports[1]; r.Requests < 5 || r.Failures != r.Requests || r.Reasons["refused"] != r.Failures {
		t.Errorf("a listener that is gone: %+v", r)
	}
	if r := reports[2]; r.Failures != 0 || r.Answers["me"] != r.Requests || r.Requests < 5 {
		t.Errorf("one connection: %+v", r)
	}
}

// A mute listener makes a long connection break once, and every new one fail.
func TestLoadSeesSilence(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	reports := loadFor(t, 500*time.Millisecond, "new="+listener.Addr().String(), "long=long:"+listener.Addr().String())
	if r := reports[0]; r.Failures < 2 || r.Failures != r.Requests || r.Reasons["timeout"] != r.Failures {
		t.Errorf("new connections: %+v", r)
	}
	if r := reports[1]; r.Requests != 1 || r.Failures != 1 {
		t.Errorf("one connection that broke was made again: %+v", r)
	}
}

func TestRunSaysWhatItWants(t *testing.T) {
	for _, args := range [][]string{nil, {"serve"}, {"load"}, {"load", "nonsense"}, {"else"}} {
		if err := run(args); err == nil || strings.TrimSpace(err.Error()) == "" {
			t.Errorf("%q was taken", args)
		}
	}
}
