package auth

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// leeway is by how much this machine's clock and the API server's may differ.
	leeway = 10 * time.Second
	// accountPrefix begins the user name of a ServiceAccount: "system:serviceaccount:NAMESPACE:NAME".
	accountPrefix = "system:serviceaccount:"
)

// algorithms are those that kube-apiserver signs ServiceAccount tokens with (k8s.io/kubernetes/pkg/serviceaccount/jwt.go).
// "none" and the symmetric ones are not among them.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}
}

// claims are those of a bound ServiceAccount token (KEP-1205; the node since 1.30, KEP-4193).
type claims struct {
	jwt.Claims

	Kubernetes struct {
		Namespace      string  `json:"namespace"`
		ServiceAccount object  `json:"serviceaccount"`
		Pod            *object `json:"pod"`
		Node           *object `json:"node"`
	} `json:"kubernetes.io"`
}

type object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// errUnknownKey means that a token is signed with a key that the cluster does not publish, as far as is known here.
var errUnknownKey = errors.New("it is signed with a key that this cluster does not publish")

// keyring are the keys of one moment.
type keyring struct {
	issuers []string
	keys    jose.JSONWebKeySet
}

// verify checks signature, issuer, audience and times of a token, and that its claims agree with each other.
func (k *keyring) verify(token, audience string, now time.Time) (*claims, error) {
	parsed, err := jwt.ParseSigned(token, algorithms())
	if err != nil {
		return nil, fmt.Errorf("it is no signed token: %w", err)
	}
	key, err := k.key(parsed.Headers[0].KeyID)
	if err != nil {
		return nil, err
	}
	told := &claims{}
	if err := parsed.Claims(key, told); err != nil {
		return nil, fmt.Errorf("its signature: %w", err)
	}
	return told, k.judge(told, audience, now)
}

func (k *keyring) key(id string) (jose.JSONWebKey, error) {
	// A token without a key's id could only be tried with all of them; kube-apiserver makes none.
	found := k.keys.Key(id)
	if id == "" || len(found) == 0 || !found[0].IsPublic() {
		return jose.JSONWebKey{}, errUnknownKey
	}
	return found[0], nil
}

func (k *keyring) judge(told *claims, audience string, now time.Time) error {
	issued := false
	for _, issuer := range k.issuers {
		issued = issued || issuer == told.Issuer
	}
	switch {
	case !issued:
		return fmt.Errorf("its issuer is %q, not this cluster", told.Issuer)
	case told.Expiry == nil:
		return errors.New("it never expires")
	case told.Subject != told.name():
		return fmt.Errorf("its subject %q is not its ServiceAccount", told.Subject)
	}
	if err := told.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{audience}, Time: now}, leeway); err != nil {
		return fmt.Errorf("its claims: %w", err)
	}
	return nil
}

// name is the user name that the claims give.
func (c *claims) name() string {
	return accountPrefix + c.Kubernetes.Namespace + ":" + c.Kubernetes.ServiceAccount.Name
}
