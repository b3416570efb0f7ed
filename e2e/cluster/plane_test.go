package cluster_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
)

// Tokens of service accounts are bound to a node, as the kubelet asks for them: the API server knows them with the
// node's name, holds them to RBAC, and forgets them with the node.
func TestNodeBoundTokens(t *testing.T) {
	t.Parallel()
	c, _ := clustertest.Start(t)
	n := clustertest.AddNode(t, c, cluster.NodeSpec{Name: "first", Proxy: kube.Proxy137})
	if err := c.CreateServiceAccount(t.Context(), "default", "agent"); err != nil {
		t.Fatal(err)
	}
	token, err := c.NodeToken(t.Context(), "default", "agent", n.Name, "offramp")
	if err != nil {
		t.Fatal(err)
	}
	if claims := claimsOf(t, token); !strings.Contains(claims, `"node":{"name":"first"`) || !strings.Contains(claims, `"aud":["offramp"]`) {
		t.Errorf("the token's claims are %s, want the node's name and the audience", claims)
	}

	review, err := c.ReviewToken(t.Context(), token, "offramp")
	if err != nil {
		t.Fatal(err)
	}
	check(t, "authenticated", review.Authenticated, true)
	check(t, "user", review.Username, "system:serviceaccount:default:agent")
	check(t, "node", review.Node, "first")
	if wrong, err := c.ReviewToken(t.Context(), token, "somebody-else"); err != nil || wrong.Authenticated {
		t.Errorf("a token for another audience was taken (%v)", err)
	}

	// Without an audience it is for the API server itself, which gives this account no right to anything.
	own, err := c.NodeToken(t.Context(), "default", "agent", n.Name, "")
	if err != nil {
		t.Fatal(err)
	}
	var refused *cluster.StatusError
	if err := c.API.As(own).Do(t.Context(), "GET", "/api/v1/nodes", nil, nil); !errors.As(err, &refused) || refused.Code != http.StatusForbidden {
		t.Errorf("asking for nodes without the right to: %v, want status 403", err)
	}
	if err := c.API.As("nobody's").Do(t.Context(), "GET", "/api/v1/nodes", nil, nil); !errors.As(err, &refused) || refused.Code != http.StatusUnauthorized {
		t.Errorf("asking with a token that is none: %v, want status 401", err)
	}

	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The API server keeps an answer for 10 s.
	eventually(t, 30*time.Second, "the token of a node that is gone is refused", func() bool {
		gone, err := c.ReviewToken(t.Context(), token, "offramp")
		return err == nil && !gone.Authenticated
	})
}

func claimsOf(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts, want 3", len(parts))
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !json.Valid(claims) {
		t.Fatalf("the token's claims are no JSON (%v)", err)
	}
	return string(claims)
}

// Many Services in a namespace of the host, where a sync of all of them takes a second.
func TestGenerate(t *testing.T) {
	t.Parallel()
	const services, endpoints = 200, 5
	c, _ := clustertest.Start(t)
	n := clustertest.AddNode(t, c, cluster.NodeSpec{Name: "first", Proxy: kube.Proxy137})
	if err := c.Generate(t.Context(), services, endpoints); err != nil {
		t.Fatal(err)
	}
	p := clustertest.StartProxy(t, n, cluster.ProxyConfig{Mode: "iptables"})
	saved, err := cluster.Output(t.Context(), n, "iptables-save", "-t", "nat")
	if err != nil {
		t.Fatal(err)
	}
	check(t, "chains of Services", strings.Count(saved, "\n:KUBE-SVC-"), services+1) // and that of the API server
	check(t, "chains of endpoints", strings.Count(saved, "\n:KUBE-SEP-"), services*endpoints+1)
	end(t, p)
}
