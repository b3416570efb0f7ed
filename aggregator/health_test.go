package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/internal/leaktest"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func metricsAddress(t *testing.T, log *output) string {
	t.Helper()
	serving := regexp.MustCompile(`"msg":"serving metrics","address":"([^"]+)"`)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if found := serving.FindStringSubmatch(log.String()); found != nil {
			return found[1]
		}
	}
	t.Fatalf("it serves no metrics: %s", log.String())
	return ""
}

func TestReady(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	certificate := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New("none yet")
	}}
	for name, tt := range map[string]struct {
		serving   context.Context
		transport *tls.Config
		want      string
	}{
		"plaintext":      {t.Context(), nil, ""},
		"draining":       {ended, nil, "draining"},
		"no certificate": {t.Context(), certificate, "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&around{}).ready(tt.serving, tt.transport)()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// While open calls have time to end, health is answered, and says so.
func TestHealthWhileDraining(t *testing.T) {
	leaktest.Check(t)
	var stdout, stderr output
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	args := []string{"run", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--insecure-plaintext", "--auth", "none", "--log-format", "json", "--drain-timeout", "3s"}
	go func() { ended <- run(ctx, args, noVariables, &stdout, &stderr) }()
	address := waitForAddress(t, &stderr)
	base := "http://" + metricsAddress(t, &stderr)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/": 404} {
		if code, body := get(t, base+path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	// A connection that says nothing keeps the server from ending at once.
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	time.Sleep(100 * time.Millisecond)
	cancel()
	said := 0
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		code, body := get(t, base+"/readyz")
		if code == 503 && body == "draining\n" {
			said++
			_ = silent.Close()
		}
		if code == 0 {
			break
		}
	}
	if code := <-ended; code != 0 || said == 0 {
		t.Errorf("exit code %d, draining was said %d times", code, said)
	}
}
