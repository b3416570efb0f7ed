// Package apiserver asks a Kubernetes API server what the package auth wants to know, and keeps what the package authority
// has to share between replicas.
package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"offramp.dev/offramp/aggregator/auth"
)

// API is an API server. It implements auth.API.
type API struct {
	authentication *authentication.AuthenticationV1Client
	authorization  *authorization.AuthorizationV1Client
	core           *core.CoreV1Client
}

var _ auth.API = (*API)(nil)

// Connect prepares to talk to the API server that a kubeconfig file names, or with an empty path to that of the cluster
// which this pod runs in; then rest.ErrNotInCluster says that there is none. It sends nothing yet.
func Connect(kubeconfig string) (*API, error) {
	config, err := configuration(kubeconfig)
	if err != nil {
		return nil, err
	}
	// How often it is asked is decided by who asks; a second limit here would only make that harder to see.
	config.QPS = -1
	config.UserAgent = "offramp-aggregator"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to talk to the API server: %w", err)
	}
	api := &API{}
	if api.authentication, err = authentication.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare to review tokens: %w", err)
	}
	if api.authorization, err = authorization.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare to review access: %w", err)
	}
	if api.core, err = core.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("prepare to read pods and secrets: %w", err)
	}
	return api, nil
}

// Client is a client for reading the cluster, reached as Connect does. client-go's own limit, 50 calls a second, holds for it.
func Client(kubeconfig string) (kubernetes.Interface, error) {
	config, err := configuration(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.QPS, config.Burst = "offramp-aggregator", readRate, 2*readRate
	// Protobuf takes a third of the time and bytes of JSON.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to read the cluster: %w", err)
	}
	return client, nil
}

// readRate is how many calls a second reading the cluster may take.
const readRate = 50

func configuration(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// Published implements auth.API by the two documents of ServiceAccount issuer discovery. Every ServiceAccount may read them
// where the cluster grants the role system:service-account-issuer-discovery, as it does by default.
func (a *API) Published(ctx context.Context) (auth.Published, error) {
	raw, err := a.core.RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
	if err != nil {
		return auth.Published{}, fmt.Errorf("read /.well-known/openid-configuration: %w", err)
	}
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(raw, &discovery); err != nil {
		return auth.Published{}, fmt.Errorf("read /.well-known/openid-configuration: %w", err)
	}
	keys, err := a.core.RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	if err != nil {
		return auth.Published{}, fmt.Errorf("read /openid/v1/jwks: %w", err)
	}
	return auth.Published{Issuer: discovery.Issuer, Keys: keys}, nil
}

// ReviewToken implements auth.API by a TokenReview.
func (a *API) ReviewToken(ctx context.Context, token, audience string) (auth.Review, error) {
	review, err := a.authentication.TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return auth.Review{}, fmt.Errorf("review a token: %w", err)
	}
	status := review.Status
	answer := auth.Review{Authenticated: status.Authenticated, Reason: status.Error, User: user(status.User)}
	// An API server that knows no audiences names none and has checked none.
	if answer.Authenticated && !slices.Contains(status.Audiences, audience) {
		answer.Authenticated, answer.Reason = false, "the API server did not check the audience"
	}
	return answer, nil
}

func user(told authenticationv1.UserInfo) auth.User {
	extra := map[string][]string{}
	for key, values := range told.Extra {
		extra[key] = values
	}
	return auth.User{Name: told.Username, UID: told.UID, Groups: told.Groups, Extra: extra}
}

// NodeOfPod implements auth.API. It wants the right to get pods in the namespace, and is asked only by tokens of Kubernetes
// before 1.30.
func (a *API) NodeOfPod(ctx context.Context, namespace, name, uid string) (string, error) {
	pod, err := a.core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look for the pod %s/%s: %w", namespace, name, err)
	}
	if string(pod.UID) != uid || pod.Spec.NodeName == "" {
		return "", fmt.Errorf("the pod %s/%s is another one now, or on no node", namespace, name)
	}
	return pod.Spec.NodeName, nil
}

// ReviewAccess implements auth.API by a SubjectAccessReview.
func (a *API) ReviewAccess(ctx context.Context, who auth.User, what auth.Action) (auth.Decision, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range who.Extra {
		extra[key] = values
	}
	review, err := a.authorization.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Name, UID: who.UID, Groups: who.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: auth.Group, Version: "v1", Resource: what.Resource, Verb: what.Verb, Name: what.Node,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return auth.Decision{}, fmt.Errorf("review what %s may do: %w", who.Name, err)
	}
	// Denied wins over Allowed; an error in between is a reason, and leaves Allowed as it is.
	return auth.Decision{Allowed: review.Status.Allowed && !review.Status.Denied, Reason: review.Status.Reason}, nil
}
