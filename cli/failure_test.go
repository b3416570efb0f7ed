package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Every failure is one line that says what failed and what to do.
func TestFailuresOfTheAggregator(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"unavailable":       {status.Error(codes.Unavailable, "draining"), "cannot talk to the aggregator at 127.0.0.1:"},
		"no stream":         {status.Error(codes.Unavailable, `node "worker-9" has no stream to this aggregator`), `asking for node "worker-9": node "worker-9" has no stream to this aggregator: no agent`},
		"not found":         {status.Error(codes.NotFound, "node worker-9 never reported"), `asking for node "worker-9": node worker-9 never reported`},
		"deadline":          {status.Error(codes.DeadlineExceeded, "slow"), "within 10s; is the address right?"},
		"unauthenticated":   {status.Error(codes.Unauthenticated, "no token"), "refuses the caller: no token"},
		"permission denied": {status.Error(codes.PermissionDenied, "viewer"), "refuses the caller: viewer"},
		"unimplemented":     {status.Error(codes.Unimplemented, "no such method"), "another version"},
		"exhausted":         {status.Error(codes.ResourceExhausted, "too many watches"), "too many watches"},
		"internal":          {status.Error(codes.Internal, "a bug"), "answered Internal: a bug"},
		"hostile":           {status.Error(codes.NotFound, "gone\x1b[2J\nworker-9: ready"), `gone\x1b[2J\x0aworker-9: ready`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ask(t, &fakeFleet{err: tt.err}, "node", "worker-9")
			got.want(t, 1, "", tt.want)
			if got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("not one line on stderr alone: %q, %q", got.stdout, got.stderr)
			}
		})
	}
}

func TestEveryCommandFailsClearly(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"nodes"}, {"nodes", "-w"}, {"node", "worker-1"}, {"ready"}} {
		got := call(t.Context(), nil, append(args, "--aggregator", unusedAddress(t), "--insecure-plaintext")...)
		got.want(t, 1, "", "connection refused; does it run")
		ask(t, &fakeFleet{err: status.Error(codes.Unavailable, "draining")}, args...).want(t, 1, "", "draining")
	}
}

// unusedAddress is one that nobody listens on.
func unusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func TestWrongCalls(t *testing.T) {
	for want, args := range map[string][]string{
		"Name it with --aggregator":       {"status"},
		"wants host:port":                 {"status", "--aggregator", "example.com"},
		"no TLS":                          {"status", "--aggregator", "a:1", "--insecure-plaintext", "--ca-file", "x"},
		"--timeout must be":               {"status", "--aggregator", "a:1", "--timeout", "0s"},
		"/nowhere/ca.pem":                 {"status", "--aggregator", "a:1", "--ca-file", "/nowhere/ca.pem"},
		`"nft" is no target`:              {"ready", "--target", "nft"},
		`"xml" is none of`:                {"nodes", "-o", "xml"},
		"takes no argument":               {"nodes", "worker-1"},
		"unknown command":                 {"frobnicate"},
		"unknown flag":                    {"status", "--frobnicate"},
		"wants one node name, got 2":      {"node", "a", "b"},
		"wants one node name, got 1 argu": {"node", ""},
	} {
		got := call(t.Context(), nil, args...)
		got.want(t, 1, "", want)
		if got.stdout != "" {
			t.Errorf("%q wrote to stdout: %s", args, got.stdout)
		}
	}
	call(t.Context(), map[string]string{"OFFRAMP_TIMEOUT": "soon"}, "status").want(t, 1, "", "variable OFFRAMP_TIMEOUT")
}

// A listener that never answers is what a wrong address behind a firewall looks like.
func TestSilenceEndsInTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	for _, args := range [][]string{{"status"}, {"nodes"}, {"nodes", "-w"}, {"node", "worker-1"}, {"ready"}} {
		start := time.Now()
		got := call(t.Context(), nil, append(args, "--aggregator", listener.Addr().String(), "--timeout", "200ms")...)
		got.want(t, 1, "", "within 200ms")
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%q took %s", args, took)
		}
	}
}

func TestPlaintextAndTLSTellEachOtherApart(t *testing.T) {
	address := serve(t, &fakeFleet{})
	call(t.Context(), nil, "status", "--aggregator", address).want(t, 1, "", "--insecure-plaintext")
}

func TestInterruptIsNamed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call(ctx, nil, "status", "--aggregator", serve(t, &fakeFleet{}), "--insecure-plaintext").want(t, 1, "", "interrupted")
}

// More nodes than fit into gRPC's own limit of 4 MiB still arrive.
func TestLargeAnswers(t *testing.T) {
	items := make([]string, 100_000)
	for i := range items {
		items[i] = strings.Repeat("f", 50)
	}
	list := &offrampv1.NamedList{List: &offrampv1.ListDigest{Count: uint64(len(items))}, Items: items}
	got := ask(t, &fakeFleet{node: &offrampv1.GetNodeResponse{Lists: []*offrampv1.NamedList{list}}}, "node", "n", "--list", "ipvs-link-addresses")
	got.want(t, 0, "", "")
	if n := strings.Count(got.stdout, "\n"); n != len(items) {
		t.Errorf("%d lines", n)
	}
}
