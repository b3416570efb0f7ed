package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// fakeAPI is an API server that notes who asked for what.
type fakeAPI struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	asked  []string // "METHOD path by credentials"
	tokens int
	life   time.Duration
	refuse int // status of an answer to a TokenRequest, 0 for a token
	noSelf bool
	bundle string
}

func startAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := &fakeAPI{t: t, life: 10 * time.Minute, bundle: "-----BEGIN CERTIFICATE-----\n"}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.answer))
	a.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

// by is whose credentials came with a request.
func by(r *http.Request) string {
	switch {
	case r.Header.Get("Impersonate-User") != "":
		return r.Header.Get("Authorization") + " as " + r.Header.Get("Impersonate-User")
	case r.Header.Get("Authorization") != "":
		return r.Header.Get("Authorization")
	case len(r.TLS.PeerCertificates) > 0:
		return "certificate of " + r.TLS.PeerCertificates[0].Subject.CommonName
	default:
		return "nobody"
	}
}

func (a *fakeAPI) answer(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, fmt.Sprintf("%s %s by %s", r.Method, r.URL.Path, by(r)))
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/token") && a.refuse != 0:
		a.fail(w, a.refuse)
	case strings.HasSuffix(r.URL.Path, "/token"):
		a.tokens++
		a.token(w, r)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") && a.noSelf:
		a.fail(w, http.StatusNotFound)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		_, _ = w.Write([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"ada@example.com"}}}`))
	case strings.HasSuffix(r.URL.Path, "/configmaps/offramp-authority"):
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]string{"ca.crt": a.bundle}})
	default:
		a.fail(w, http.StatusTeapot)
	}
}

func (a *fakeAPI) token(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	asked, ok := decoded.(*authenticationv1.TokenRequest)
	if err != nil || !ok || !slices.Equal(asked.Spec.Audiences, []string{"offramp"}) || *asked.Spec.ExpirationSeconds != 600 {
		a.t.Errorf("asked for %+v (%v)", asked, err)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": map[string]any{
		"token": fmt.Sprintf("token-%d", a.tokens), "expirationTimestamp": time.Now().Add(a.life).UTC().Format(time.RFC3339)}})
}

func (*fakeAPI) fail(w http.ResponseWriter, code int) {
	reasons := map[int]string{http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized", http.StatusNotFound: "NotFound"}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reasons[code], "message": "no"})
}

// kubeconfig writes one with a user of some kind, in YAML.
func (a *fakeAPI) kubeconfig(user string) string {
	a.t.Helper()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}))
	path := filepath.Join(a.t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it,
contexts: [{name: it, context: {cluster: it, user: me}}, {name: broken, context: {cluster: none, user: me}}],
clusters: [{name: it, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: me, user: %s}]}`, a.URL, ca, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func (a *fakeAPI) open(settings Settings, user string) *Cluster {
	a.t.Helper()
	settings.Kubeconfig, settings.Namespace, settings.Audience, settings.ConfigMap = a.kubeconfig(user), "offramp", "offramp", "offramp-authority"
	c, err := Open(settings, "offramp-viewer")
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// clientCertificate is a user with a certificate, as kubeadm makes its administrators.
func clientCertificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ada"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}", encode("CERTIFICATE", der), encode("PRIVATE KEY", private))
}

const exec = `{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/echo,
args: ['{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-a-plugin"}}']}}`

// Every kind of kubeconfig gets a token of the account; what the person has goes to the API server, and nothing of it on.
func TestEveryKindOfKubeconfig(t *testing.T) {
	tests := map[string]struct {
		user     string
		settings Settings
		account  string
		by       string
		secret   string
	}{
		"token":              {"{token: own-secret}", Settings{}, "offramp-viewer", "Bearer own-secret", "own-secret"},
		"basic":              {"{username: ada, password: own-secret}", Settings{}, "offramp-viewer", "Basic YWRhOm93bi1zZWNyZXQ=", "own-secret"},
		"certificate":        {clientCertificate(t), Settings{}, "offramp-viewer", "certificate of ada", "PRIVATE"},
		"plugin":             {exec, Settings{}, "offramp-viewer", "Bearer from-a-plugin", "from-a-plugin"},
		"impersonation":      {"{token: own-secret}", Settings{As: "bob"}, "offramp-viewer", "Bearer own-secret as bob", "own-secret"},
		"an account by name": {"{token: own-secret}", Settings{Account: "team-a"}, "team-a", "Bearer own-secret", "own-secret"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			api := startAPI(t)
			sent, err := api.open(tt.settings, tt.user).PerCall().GetRequestMetadata(t.Context())
			if err != nil || sent["authorization"] != "Bearer token-1" || sent["offramp-claimed-user-bin"] != "ada@example.com" || len(sent) != 2 {
				t.Errorf("sends %v, %v", sent, err)
			}
			if strings.Contains(fmt.Sprint(sent), tt.secret) {
				t.Errorf("the person's own credentials travel: %v", sent)
			}
			want := fmt.Sprintf("[POST /api/v1/namespaces/offramp/serviceaccounts/%s/token by %s POST /apis/authentication.k8s.io/v1/selfsubjectreviews by %s]", tt.account, tt.by, tt.by)
			if got := fmt.Sprint(api.asked); got != want {
				t.Errorf("asked\n%s, want\n%s", got, want)
			}
		})
	}
}

// One token serves many calls, and is replaced before it expires.
func TestTokensAreReplacedInTime(t *testing.T) {
	api := startAPI(t)
	c := api.open(Settings{}, "{token: x}")
	for range 3 {
		if token, _, err := c.Token(t.Context()); err != nil || token != "token-1" {
			t.Errorf("got %q, %v", token, err)
		}
	}
	c.now = func() time.Time { return time.Now().Add(9*time.Minute + 30*time.Second) }
	if token, claimed, err := c.Token(t.Context()); err != nil || token != "token-2" || claimed != "ada@example.com" {
		t.Errorf("half a minute before the end: %q, %q, %v", token, claimed, err)
	}
}

// An API server that cannot tell who we are is no reason to stay outside.
func TestNobodyKnowsWhoWeAre(t *testing.T) {
	api := startAPI(t)
	api.noSelf = true
	sent, err := api.open(Settings{}, "{token: x}").PerCall().GetRequestMetadata(t.Context())
	if err != nil || len(sent) != 1 {
		t.Errorf("sends %v, %v", sent, err)
	}
}

func TestRefusedByTheAPIServer(t *testing.T) {
	for code, want := range map[int]codes.Code{
		http.StatusForbidden: codes.PermissionDenied, http.StatusUnauthorized: codes.Unauthenticated,
		http.StatusNotFound: codes.PermissionDenied, http.StatusInternalServerError: codes.Unavailable,
	} {
		api := startAPI(t)
		api.refuse = code
		_, err := api.open(Settings{}, "{token: x}").PerCall().GetRequestMetadata(t.Context())
		if status.Code(err) != want || !strings.HasPrefix(status.Convert(err).Message(), Says) || !strings.Contains(err.Error(), "offramp/offramp-viewer") {
			t.Errorf("%d: %v, want %v", code, err, want)
		}
	}
	api := startAPI(t)
	c := api.open(Settings{}, "{token: x}")
	api.Close()
	if _, err := c.PerCall().GetRequestMetadata(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("nobody there: %v", err)
	}
}

func TestRoots(t *testing.T) {
	api := startAPI(t)
	c := api.open(Settings{}, "{token: x}")
	if pem, err := c.Roots(t.Context()); err != nil || string(pem) != api.bundle {
		t.Errorf("got %q, %v", pem, err)
	}
	api.bundle = ""
	if _, err := c.Roots(t.Context()); err == nil || !strings.Contains(err.Error(), "offramp/offramp-authority") {
		t.Errorf("got %v", err)
	}
	if got := c.ServerName(); got != "offramp-aggregator.offramp.svc" {
		t.Errorf("expects %s", got)
	}
	if !c.PerCall().RequireTransportSecurity() {
		t.Error("the token would be sent in the clear")
	}
}

func TestOpenFails(t *testing.T) {
	if _, err := Open(Settings{Kubeconfig: "/nowhere/config"}, "x"); err == nil || !strings.Contains(err.Error(), "/nowhere/config") {
		t.Errorf("no such file: %v", err)
	}
	api := startAPI(t)
	if _, err := Open(Settings{Kubeconfig: api.kubeconfig("{token: x}"), Context: "broken"}, "x"); err == nil {
		t.Error("a context without a cluster was taken")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	if _, err := Open(Settings{}, "x"); !errors.Is(err, ErrNone) || Exists() {
		t.Errorf("no kubeconfig: %v, exists %t", err, Exists())
	}
	t.Setenv("KUBECONFIG", api.kubeconfig("{token: x}"))
	if _, err := Open(Settings{}, "x"); err != nil || !Exists() {
		t.Errorf("KUBECONFIG: %v, exists %t", err, Exists())
	}
}
