package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// fakeCluster is an API server that knows tokens, rights, one Secret and one ConfigMap.
type fakeCluster struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey

	mu      sync.Mutex
	secret  *corev1.Secret
	config  *corev1.ConfigMap
	version int
	gone    string // a pod that is no more
	revoked bool   // operators may nothing
	down    bool
}

func startCluster(t *testing.T) *fakeCluster {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "offramp-authority", Namespace: "offramp", ResourceVersion: "1"}
	c := &fakeCluster{t: t, key: key, version: 1, secret: &corev1.Secret{ObjectMeta: meta}, config: &corev1.ConfigMap{ObjectMeta: meta}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.answer))
	t.Cleanup(c.Close)
	return c
}

func (c *fakeCluster) answer(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	object, _, _ := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch path := r.URL.Path; {
	case c.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasSuffix(path, "openid-configuration"):
		answer = map[string]string{"issuer": "https://it"}
	case strings.HasSuffix(path, "jwks"):
		answer = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: c.key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}}
	case r.Method == http.MethodGet && strings.Contains(path, "/secrets/"):
		answer = typed(c.secret.DeepCopy(), "Secret")
	case r.Method == http.MethodGet && strings.Contains(path, "/configmaps/"):
		answer = typed(c.config.DeepCopy(), "ConfigMap")
	default:
		answer = c.change(w, object)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// change answers what is sent.
func (c *fakeCluster) change(w http.ResponseWriter, object runtime.Object) any {
	switch o := object.(type) {
	case *corev1.Secret:
		if o.ResourceVersion != c.secret.ResourceVersion {
			w.WriteHeader(http.StatusConflict)
			return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict"}
		}
		c.version++
		o.ResourceVersion = fmt.Sprint(c.version)
		c.secret = o
		return typed(o, "Secret")
	case *corev1.ConfigMap:
		c.config = o
		return typed(o, "ConfigMap")
	case *authenticationv1.TokenReview:
		parsed, _ := jwt.ParseSigned(o.Spec.Token, []jose.SignatureAlgorithm{jose.ES256})
		var told jwt.Claims
		_ = parsed.UnsafeClaimsWithoutVerification(&told)
		good := c.gone == "" || told.ID != c.gone
		o.Status = authenticationv1.TokenReviewStatus{Authenticated: good, Audiences: []string{"offramp"}, User: authenticationv1.UserInfo{Username: told.Subject}}
		return o
	case *authorizationv1.SubjectAccessReview:
		order := o.Spec.ResourceAttributes.Resource == "nodecleanups"
		o.Status.Allowed = !order || strings.HasSuffix(o.Spec.User, "offramp-operator") && !c.revoked
		return o
	default:
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
}

func typed(object runtime.Object, kind string) runtime.Object {
	object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}

// token is one of an account; an agent's is bound to a pod on a node, and has the pod's name for its id.
func (c *fakeCluster) token(account, node string) string {
	c.t.Helper()
	bound := map[string]any{"namespace": "offramp", "serviceaccount": map[string]string{"name": account}}
	if node != "" {
		bound["pod"], bound["node"] = map[string]string{"name": "pod-" + node}, map[string]string{"name": node}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: c.key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		c.t.Fatal(err)
	}
	now := time.Now()
	text, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": "https://it", "aud": []string{"offramp"}, "sub": "system:serviceaccount:offramp:" + account, "jti": "pod-" + node,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(), "kubernetes.io": bound,
	}).Serialize()
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// serve runs an aggregator that has nothing but a kubeconfig, and returns its address and its log.
func (c *fakeCluster) serve() (string, *output) {
	c.t.Helper()
	kubeconfig := filepath.Join(c.t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it}}], clusters: [{name: it, cluster: {server: %q}}]}`, c.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	stdout, stderr := &output{}, &output{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	args := []string{"run", "--listen", "127.0.0.1:0", "--log-format", "json", "--kubeconfig", kubeconfig, "--token-review-interval", "200ms"}
	go func() { ended <- run(ctx, args, noVariables, stdout, stderr) }()
	c.t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			c.t.Errorf("exit code %d: %s", code, stderr.String())
		}
	})
	return waitForAddress(c.t, stderr), stderr
}

// dial trusts what the aggregator has published, and expects its Service's name.
func (c *fakeCluster) dial(address string) *grpc.ClientConn {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(c.config.Data["ca.crt"])) {
		c.t.Fatal("nothing is published")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "offramp-aggregator.offramp.svc"}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c *fakeCluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func with(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// With a kubeconfig and nothing else the aggregator makes its own authority and tells callers apart.
func TestKubernetes(t *testing.T) {
	cluster := startCluster(t)
	address, log := cluster.serve()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	conn := cluster.dial(address)
	agent, viewer, operator := with(ctx, cluster.token("offramp-agent", "node-a")), with(ctx, cluster.token("offramp-viewer", "")), with(ctx, cluster.token("offramp-operator", ""))
	for name, tt := range map[string]struct{ got, want codes.Code }{
		"an agent for its node": {says(agent, conn, "node-a"), codes.OK},
		"an agent for another":  {says(agent, conn, "node-b"), codes.PermissionDenied},
		"an agent asks":         {lists(agent, conn), codes.PermissionDenied},
		"a viewer asks":         {lists(viewer, conn), codes.OK},
		"a viewer orders":       {plans(viewer, conn), codes.PermissionDenied},
		"an operator orders":    {plans(operator, conn), codes.Unavailable},
		"nobody asks":           {lists(ctx, conn), codes.Unauthenticated},
		"nobody reports":        {says(ctx, conn, "node-a"), codes.Unauthenticated},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
	}
	if strings.Count(log.String(), `"msg":"refused"`) != 5 || strings.Contains(log.String(), "eyJ") {
		t.Errorf("the log is not five refusals and no token: %s", log.String())
	}
	// A second replica takes the first one's authority: who trusts the one trusts the other.
	second, _ := cluster.serve()
	code, version := lists(viewer, cluster.dial(second)), 0
	if cluster.set(func() { version = cluster.version }); code != codes.OK || version != 2 {
		t.Errorf("a second replica: %v, the Secret has version %d", code, version)
	}
}

// A pod that is no more loses its stream; an operator without his role is refused; without an API server nobody orders.
func TestKubernetesTakesBack(t *testing.T) {
	cluster := startCluster(t)
	address, _ := cluster.serve()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	conn := cluster.dial(address)
	agent := with(ctx, cluster.token("offramp-agent", "node-a"))
	if code := says(agent, conn, "node-a"); code != codes.OK {
		t.Fatal(code)
	}
	cluster.set(func() { cluster.gone = "pod-node-a" })
	for says(agent, conn, "node-a") != codes.Unauthenticated {
		if ctx.Err() != nil {
			t.Fatal("the token of a pod that is gone stays good")
		}
		time.Sleep(50 * time.Millisecond)
	}
	operator := with(ctx, cluster.token("offramp-operator", ""))
	if code := plans(operator, conn); code != codes.Unavailable {
		t.Fatal(code)
	}
	cluster.set(func() { cluster.revoked = true })
	for plans(operator, conn) != codes.PermissionDenied {
		if ctx.Err() != nil {
			t.Fatal("an operator without his role goes on")
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// An API server that answers only after a while delays the start; the aggregator does not listen before it can tell callers
// apart.
func TestKubernetesComesLater(t *testing.T) {
	cluster := startCluster(t)
	cluster.set(func() { cluster.down = true })
	go func() {
		time.Sleep(time.Second)
		cluster.set(func() { cluster.down = false })
	}()
	address, log := cluster.serve()
	if lists(with(t.Context(), cluster.token("offramp-viewer", "")), cluster.dial(address)) != codes.OK || !strings.Contains(log.String(), "not ready to start yet") {
		t.Errorf("the log: %s", log.String())
	}
}
