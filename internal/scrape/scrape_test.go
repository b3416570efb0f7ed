package scrape_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"offramp.dev/offramp/internal/leaktest"
	"offramp.dev/offramp/internal/scrape"
)

func TestServesMetricsAndNothingElse(t *testing.T) {
	leaktest.Check(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- scrape.Serve(ctx, listener, scrape.Handlers{Metrics: metrics()})
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound, "/healthz": http.StatusNotFound, "/readyz": http.StatusNotFound} {
		answer, err := client.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != want || (want == http.StatusOK && string(body) != "up 1\n") {
			t.Errorf("%s: %d %q", path, answer.StatusCode, body)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if answer, err := client.Get("http://" + listener.Addr().String() + "/metrics"); err == nil {
		_ = answer.Body.Close()
		t.Error("it answers after its end")
	}
}

func metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
}

func TestHealth(t *testing.T) {
	leaktest.Check(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var reason atomic.Value
	ready := func() error {
		if why, _ := reason.Load().(string); why != "" {
			return errors.New(why)
		}
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- scrape.Serve(ctx, listener, scrape.Handlers{Metrics: metrics(), Live: scrape.Alive, Ready: ready})
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		method, path, reason string
		code                 int
		body                 string
	}{
		{"GET", "/healthz", "", 200, "ok\n"},
		{"GET", "/readyz", "", 200, "ok\n"},
		{"HEAD", "/readyz", "", 200, ""},
		{"GET", "/readyz", "draining", 503, "draining\n"},
		{"GET", "/healthz", "draining", 200, "ok\n"},
		{"GET", "/readyz", "", 200, "ok\n"},
		{"POST", "/healthz", "", 405, "Method Not Allowed\n"},
		{"GET", "/readyz/x", "", 404, "404 page not found\n"},
	} {
		reason.Store(tt.reason)
		request, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+listener.Addr().String()+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != tt.code || string(body) != tt.body {
			t.Errorf("%s %s while %q: %d %q, want %d %q", tt.method, tt.path, tt.reason, answer.StatusCode, body, tt.code, tt.body)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestABrokenListenerIsSaid(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := scrape.Serve(t.Context(), listener, scrape.Handlers{Metrics: http.NotFoundHandler()}); err == nil {
		t.Error("no error")
	}
}
