package scrape_test

import (
	"context"
	"io"
	"net"
	"net/http"
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
		ended <- scrape.Serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) }))
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
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

func TestABrokenListenerIsSaid(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := scrape.Serve(t.Context(), listener, http.NotFoundHandler()); err == nil {
		t.Error("no error")
	}
}
