package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"offramp.dev/offramp/internal/leaktest"
	"offramp.dev/offramp/internal/program"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// output may be written and read at the same time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func noVariables(string) (string, bool) { return "", false }

func TestEveryCommandIsDocumented(t *testing.T) {
	if missing := program.Undocumented(newRoot()); len(missing) > 0 {
		t.Errorf("undocumented: %v", missing)
	}
}

func TestVersion(t *testing.T) {
	var stdout, stderr output
	if code := run(t.Context(), []string{"version"}, noVariables, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "commit") {
		t.Errorf("code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

// What cannot work is said in one line that names what to pass.
func TestRefusedSettings(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no TLS, not said so":   {nil, "--insecure-plaintext"},
		"certificate alone":     {[]string{"--tls-cert-file", "x"}, "--tls-key-file"},
		"plaintext and files":   {[]string{"--insecure-plaintext", "--tls-cert-file", "x"}, "cannot go with"},
		"files not there":       {[]string{"--auth", "none", "--tls-cert-file", "/nowhere.crt", "--tls-key-file", "/nowhere.key"}, "/nowhere.crt"},
		"nobody knows callers":  {[]string{"--tls-cert-file", "x", "--tls-key-file", "y"}, "who may call?"},
		"the same in plaintext": {[]string{"--insecure-plaintext"}, "who may call?"},
		"mtls without a CA":     {[]string{"--auth", "mtls", "--tls-cert-file", "x", "--tls-key-file", "y"}, "--client-ca-file"},
		"tokens in the clear":   {[]string{"--auth", "kubernetes", "--insecure-plaintext"}, "in the clear"},
		"none and a cluster":    {[]string{"--auth", "none", "--kubeconfig", "x", "--tls-cert-file", "x", "--tls-key-file", "y"}, "--kubeconfig"},
		"no such kubeconfig":    {[]string{"--kubeconfig", "/nowhere.conf"}, "/nowhere.conf"},
		"no such way":           {[]string{"--auth", "maybe"}, "maybe"},
		"fewer than none":       {[]string{"--auth", "none", "--insecure-plaintext", "--max-connections-per-address", "-1"}, "--max-connections"},
		"heartbeat too fast":    {[]string{"--insecure-plaintext", "--heartbeat-interval", "1ms"}, "--heartbeat-interval"},
		"metrics nowhere":       {[]string{"--insecure-plaintext", "--metrics-listen", "x"}, "--metrics-listen"},
		"never silent":          {[]string{"--insecure-plaintext", "--silent-after", "0"}, "--silent-after"},
		"forgotten before that": {[]string{"--insecure-plaintext", "--forget-after", "1m"}, "--forget-after"},
		"no time to drain":      {[]string{"--insecure-plaintext", "--drain-timeout", "0s"}, "--drain-timeout"},
		"no such level":         {[]string{"--insecure-plaintext", "--log-level", "loud"}, "loud"},
		"no such address":       {[]string{"--insecure-plaintext", "--auth", "none", "--listen", "nonsense"}, "nonsense"},
		"an argument":           {[]string{"--insecure-plaintext", "x"}, "takes no argument"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr output
			code := run(t.Context(), append([]string{"run"}, tt.args...), noVariables, &stdout, &stderr)
			if code != 1 || !strings.Contains(stderr.String(), tt.want) || stdout.String() != "" {
				t.Errorf("code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

func TestRunServesUntilTold(t *testing.T) {
	leaktest.Check(t)
	var stdout, stderr output
	variables := map[string]string{"OFFRAMP_LISTEN": "127.0.0.1:0", "OFFRAMP_LOG_FORMAT": "json", "OFFRAMP_INSECURE_PLAINTEXT": "true", "OFFRAMP_AUTH": "none"}
	lookup := func(name string) (string, bool) { value, ok := variables[name]; return value, ok }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"run"}, lookup, &stdout, &stderr) }()
	conn, err := grpc.NewClient(waitForAddress(t, &stderr), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := v1.NewFleetServiceClient(conn).GetReadiness(ctx, &v1.GetReadinessRequest{Target: v1.Target_TARGET_IPTABLES})
	if err != nil || answer.GetTarget() != v1.Target_TARGET_IPTABLES {
		t.Errorf("got %v, %v", answer, err)
	}
	cancel()
	select {
	case code := <-ended:
		if code != 0 || !strings.Contains(stderr.String(), `"msg":"stopped"`) {
			t.Errorf("code %d, log %s", code, stderr.String())
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not stop")
	}
}

func waitForAddress(t *testing.T, log *output) string {
	t.Helper()
	listening := regexp.MustCompile(`"address":"([^"]+)"`)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if found := listening.FindStringSubmatch(log.String()); found != nil {
			return found[1]
		}
	}
	t.Fatalf("it does not listen: %s", log.String())
	return ""
}
