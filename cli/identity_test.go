package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	"offramp.dev/offramp/cli/cluster"
	"offramp.dev/offramp/internal/tlsfiles"
)

// TestMain keeps the kubeconfig of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	if err := os.Setenv("KUBECONFIG", "/nonexistent/kubeconfig"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Files say who we are; a kubeconfig does where none does, or where it is named.
func TestWhoSaysWhoWeAre(t *testing.T) {
	here := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(here, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		conn    connection
		present bool
		want    bool
	}{
		"nothing said, no kubeconfig": {connection{}, false, false},
		"nothing said, a kubeconfig":  {connection{}, true, true},
		"a CA file":                   {connection{tls: tlsfiles.Client{CAFile: "x"}}, true, false},
		"a certificate":               {connection{tls: tlsfiles.Client{CertFile: "x"}}, true, false},
		"a token":                     {connection{tokenFile: "x"}, true, false},
		"plaintext":                   {connection{tls: tlsfiles.Client{InsecurePlaintext: true}}, true, false},
		"a kubeconfig named":          {connection{cluster: cluster.Settings{Kubeconfig: "x"}}, false, true},
		"a context and a CA file":     {connection{cluster: cluster.Settings{Context: "x"}, tls: tlsfiles.Client{CAFile: "x"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.present {
				t.Setenv("KUBECONFIG", here)
			}
			if got := tt.conn.asksCluster(); got != tt.want {
				t.Errorf("asks the cluster: %t", got)
			}
		})
	}
}

func TestContradictions(t *testing.T) {
	for _, args := range [][]string{
		{"--context", "x", "--token-file", "y"}, {"--kubeconfig", "x", "--insecure-plaintext"}, {"--as", "x", "--cert-file", "y", "--key-file", "z"},
	} {
		call(t.Context(), nil, append([]string{"status", "--aggregator", "a:1"}, args...)...).want(t, 1, "", "who are you?")
	}
	call(t.Context(), nil, "status", "--aggregator", "a:1", "--insecure-plaintext", "--token-file", "x").want(t, 1, "", "in the clear")
	call(t.Context(), nil, "status", "--aggregator", "a:1", "--kubeconfig", "/nowhere/config").want(t, 1, "", "/nowhere/config")
}

// A person whom the API server gives no token hears that from the API server, not as if the aggregator had said it.
func TestTheAPIServerRefuses(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"user eve cannot create serviceaccounts/token"}`))
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it, user: me}}],
clusters: [{name: it, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: me, user: {token: x}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address, caFile := serveTLS(t, &fakeFleet{})
	call(t.Context(), nil, "status", "--aggregator", address, "--ca-file", caFile, "--kubeconfig", path).
		want(t, 1, "", "asking for the fleet's readiness: the Kubernetes API server: asking for a token of the ServiceAccount offramp/offramp-viewer: user eve")
	// Without a CA file that is asked for first.
	call(t.Context(), nil, "status", "--aggregator", address, "--kubeconfig", path).
		want(t, 1, "", "asking for the fleet's readiness: the Kubernetes API server: reading the aggregator's CA from the ConfigMap offramp/offramp-authority: user eve")
}

func TestHintsForNobody(t *testing.T) {
	nobody, holder := &connection{aggregator: "a:1"}, &connection{aggregator: "a:1", tokenFile: "x"}
	if nobody.whoHint(codes.Unauthenticated) == "" || nobody.whoHint(codes.PermissionDenied) != "" || holder.whoHint(codes.Unauthenticated) != "" {
		t.Error("the hint goes to the wrong people")
	}
}
