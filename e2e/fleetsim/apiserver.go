package fleetsim

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// API is as much of a Kubernetes API server as an aggregator asks: keys of tokens, reviews, the Secret and the ConfigMap of the
// authority, and Node objects and kube-proxy's pods, which change as those of a live cluster do.
type API struct {
	*httptest.Server
	issuer  *Issuer
	objects *objects

	requests, reviews atomic.Int64

	mu     sync.Mutex
	secret *corev1.Secret
	config *corev1.ConfigMap
}

// NewAPI starts one for a fleet. Close ends it.
func NewAPI(issuer *Issuer, nodes []string) *API {
	meta := metav1.ObjectMeta{Name: "offramp-authority", Namespace: namespace, ResourceVersion: "1"}
	api := &API{issuer: issuer, objects: newObjects(nodes), secret: &corev1.Secret{ObjectMeta: meta}, config: &corev1.ConfigMap{ObjectMeta: meta}}
	api.Server = httptest.NewUnstartedServer(http.HandlerFunc(api.answer))
	api.Config.ConnState = func(net.Conn, http.ConnState) {}
	api.Start()
	return api
}

// Requests is how often it was asked anything since the last call; Reviews how many of those were TokenReviews.
func (a *API) Requests() (requests, reviews int64) { return a.requests.Swap(0), a.reviews.Swap(0) }

// Authority are the PEM certificates that the aggregator has published.
func (a *API) Authority() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.config.Data["ca.crt"]
}

func (a *API) answer(w http.ResponseWriter, r *http.Request) {
	a.requests.Add(1)
	if r.Method == http.MethodGet && a.objects.serve(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	object, _, _ := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	w.Header().Set("Content-Type", "application/json")
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "openid-configuration"):
		reply(w, map[string]string{"issuer": issuerName})
	case strings.HasSuffix(path, "jwks"):
		reply(w, a.issuer.keys())
	default:
		a.keep(w, r, object)
	}
}

// keep reads and writes the two objects that replicas share, and answers reviews.
func (a *API) keep(w http.ResponseWriter, r *http.Request, object runtime.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Secret:
		a.secret = o
	case *corev1.ConfigMap:
		a.config = o
	case *authenticationv1.TokenReview:
		a.reviews.Add(1)
		reply(w, review(o))
		return
	case *authorizationv1.SubjectAccessReview:
		o.Status.Allowed = true
		reply(w, o)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/secrets/offramp-authority"):
		reply(w, typed(a.secret, "Secret"))
	case strings.HasSuffix(r.URL.Path, "/configmaps/offramp-authority"):
		reply(w, typed(a.config, "ConfigMap"))
	default:
		notFound(w)
	}
}

func typed(object runtime.Object, kind string) runtime.Object {
	object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}

// review confirms every token: the aggregator has checked the signature itself.
func review(asked *authenticationv1.TokenReview) *authenticationv1.TokenReview {
	parsed, err := jwt.ParseSigned(asked.Spec.Token, []jose.SignatureAlgorithm{jose.RS256})
	var told jwt.Claims
	if err == nil {
		err = parsed.UnsafeClaimsWithoutVerification(&told)
	}
	asked.Status = authenticationv1.TokenReviewStatus{
		Authenticated: err == nil, Audiences: []string{audience}, User: authenticationv1.UserInfo{Username: told.Subject},
	}
	return asked
}

func reply(w io.Writer, answer any) {
	// It fails where the aggregator has gone away meanwhile.
	_ = json.NewEncoder(w).Encode(answer)
}

func notFound(w http.ResponseWriter) { refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound) }

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reply(w, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: "the simulated API server does not have this",
	})
}
