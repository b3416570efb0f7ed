package fleetsim

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	issuerName = "https://kubernetes.default.svc.cluster.local"
	keyID      = "simulated"
	namespace  = "offramp"
	audience   = "offramp"
	// tokenLife outlives every run: agents of a run do not renew.
	tokenLife = 12 * time.Hour
)

// Issuer signs ServiceAccount tokens as kube-apiserver does: RS256 with 2048 bits, the default of kubeadm.
type Issuer struct {
	key    *rsa.PrivateKey
	signer jose.Signer
}

// NewIssuer makes a key.
func NewIssuer() (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("make a key for tokens: %w", err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", keyID))
	if err != nil {
		return nil, fmt.Errorf("prepare to sign tokens: %w", err)
	}
	return &Issuer{key: key, signer: signer}, nil
}

// keys are what the API server publishes.
func (i *Issuer) keys() jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: keyID, Algorithm: string(jose.RS256), Use: "sig"}}}
}

// bound is an object that a token is bound to.
type bound struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// Token returns a token of an account of Offramp's; an agent's is bound to its pod and node, a person's to neither.
func (i *Issuer) Token(account, node string, now time.Time) (string, error) {
	kubernetes := map[string]any{"namespace": namespace, "serviceaccount": bound{account, "4b1d5b2c-9f0e-4f6e-8a43-0f2d3c5b7a11"}}
	if node != "" {
		kubernetes["pod"] = bound{"offramp-agent-" + node, "c0a8f7e2-1c4b-4a51-9a53-7f0f2a6d9e10"}
		kubernetes["node"] = bound{node, "7d1f2f5e-6b7c-4d0a-b3c5-90a4f1f2c3d4"}
	}
	token, err := jwt.Signed(i.signer).Claims(map[string]any{
		"iss": issuerName, "aud": []string{audience}, "sub": "system:serviceaccount:" + namespace + ":" + account,
		"jti": "0f8fad5b-d9cb-469f-a165-" + account + node,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(tokenLife).Unix(), "kubernetes.io": kubernetes,
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}
