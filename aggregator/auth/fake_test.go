package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	issuer    = "https://kubernetes.default.svc"
	audience  = "offramp"
	namespace = "offramp"
	viewer    = "system:serviceaccount:offramp:offramp-viewer"
	operator  = "system:serviceaccount:offramp:offramp-operator"
	// single may order node-a alone.
	single = "system:serviceaccount:offramp:offramp-operator-a"
)

// apiserver is a cluster that signs tokens, publishes keys, reviews, and counts what it is asked.
type apiserver struct {
	t *testing.T

	mu        sync.Mutex
	keys      map[string]*ecdsa.PrivateKey
	published []string
	issuer    string
	revoked   map[string]bool // by user name
	down      error
	podNodes  map[string]string // by UID
	count     map[string]int
	times     []time.Time // of the reviews
	hang      chan struct{}
}

func newAPIServer(t *testing.T) *apiserver {
	t.Helper()
	a := &apiserver{t: t, keys: map[string]*ecdsa.PrivateKey{}, revoked: map[string]bool{}, podNodes: map[string]string{}, count: map[string]int{}, issuer: issuer}
	a.addKey("one")
	return a
}

// addKey makes a key and publishes it.
func (a *apiserver) addKey(id string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[id] = key
	a.published = append(a.published, id)
}

func (a *apiserver) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *apiserver) asked(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[what]
}

// begin counts a question.
func (a *apiserver) begin(ctx context.Context, what string) error {
	a.mu.Lock()
	a.count[what]++
	down, hang := a.down, a.hang
	a.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return down
}

func (a *apiserver) Published(ctx context.Context) (Published, error) {
	if err := a.begin(ctx, "keys"); err != nil {
		return Published{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, id := range a.published {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: a.keys[id].Public(), KeyID: id, Algorithm: "ES256", Use: "sig"})
	}
	encoded, err := json.Marshal(set)
	return Published{Issuer: a.issuer, Keys: encoded}, err
}

func (a *apiserver) ReviewToken(ctx context.Context, token, wanted string) (Review, error) {
	if err := a.begin(ctx, "review"); err != nil {
		return Review{}, err
	}
	parsed, err := jwt.ParseSigned(token, algorithms())
	if err != nil {
		return Review{}, err
	}
	var told claims
	if err := parsed.UnsafeClaimsWithoutVerification(&told); err != nil {
		return Review{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times = append(a.times, time.Now())
	if a.revoked[told.name()] || told.Kubernetes.Pod != nil && a.revoked[told.Kubernetes.Pod.Name] || !told.Audience.Contains(wanted) {
		return Review{Reason: "the token has been invalidated"}, nil
	}
	return Review{Authenticated: true, User: User{Name: told.name(), UID: "u", Groups: []string{"system:serviceaccounts"}}}, nil
}

func (a *apiserver) NodeOfPod(ctx context.Context, _, _, uid string) (string, error) {
	if err := a.begin(ctx, "pod"); err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if node := a.podNodes[uid]; node != "" {
		return node, nil
	}
	return "", errors.New("no such pod")
}

// ReviewAccess has the roles of the manifests: viewers look, operators order, single orders one node.
func (a *apiserver) ReviewAccess(ctx context.Context, user User, what Action) (Decision, error) {
	if err := a.begin(ctx, "access"); err != nil {
		return Decision{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	may := strings.HasPrefix(user.Name, "system:serviceaccount:offramp:offramp-") && what.Resource == "nodes" ||
		user.Name == operator || user.Name == single && what.Node == "node-a"
	return Decision{Allowed: may && !a.revoked["access of "+user.Name], Reason: "RBAC"}, nil
}

// token is what a test asks for; the zero value of a field is the usual.
type token struct {
	account, namespace, audience, issuer, key, subject, pod, node, id string
	life, delay                                                       time.Duration
	forever, noPod, noNode                                            bool
	signer                                                            any
	algorithm                                                         jose.SignatureAlgorithm
}

func or(given, usual string) string {
	if given == "" {
		return usual
	}
	return given
}

// mint signs a token as kube-apiserver 1.37 does.
func (a *apiserver) mint(want token) string {
	a.t.Helper()
	account, ns, now := or(want.account, "offramp-agent"), or(want.namespace, namespace), time.Now()
	if want.life == 0 {
		want.life = time.Hour
	}
	bound := map[string]any{"namespace": ns, "serviceaccount": map[string]string{"name": account, "uid": "sa-uid"}}
	if account == "offramp-agent" && !want.noPod {
		pod := or(want.pod, "pod-a")
		bound["pod"] = map[string]string{"name": pod, "uid": "uid-of-" + pod}
		if !want.noNode {
			bound["node"] = map[string]string{"name": or(want.node, "node-a"), "uid": "node-uid"}
		}
	}
	body := map[string]any{
		"iss": or(want.issuer, issuer), "aud": []string{or(want.audience, audience)}, "jti": or(want.id, "id-1"),
		"sub": or(want.subject, "system:serviceaccount:"+ns+":"+account), "kubernetes.io": bound,
		"iat": now.Unix(), "nbf": now.Add(want.delay).Unix(), "exp": now.Add(want.life).Unix(),
	}
	if want.forever {
		delete(body, "exp")
	}
	id := or(want.key, "one")
	var key any = a.keys[id]
	if want.signer != nil {
		key = want.signer
	}
	algorithm := jose.SignatureAlgorithm(or(string(want.algorithm), string(jose.ES256)))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(body).Serialize()
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newTokens is an authenticator for the cluster, prepared. Its Run does not run.
func (a *apiserver) newTokens(change func(*TokensConfig)) *Tokens {
	a.t.Helper()
	config := TokensConfig{API: a, Audience: audience, Namespace: namespace, AgentAccount: "offramp-agent", Log: quiet()}
	if change != nil {
		change(&config)
	}
	tokens := NewTokens(config)
	if err := tokens.Prepare(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	return tokens
}
