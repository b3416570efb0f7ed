package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// SignAgain takes a service account token that the API server gave, has its claims changed, and signs it with the API
// server's own key and under the same key id: a token that is right but for what change does to its claims.
func (c *Cluster) SignAgain(token string, change func(claims map[string]any)) (string, error) {
	given, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "", fmt.Errorf("reading a token: %w", err)
	}
	claims := map[string]any{}
	if err := given.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return "", fmt.Errorf("reading a token's claims: %w", err)
	}
	change(claims)
	block, _ := pem.Decode([]byte(c.plane.accountsKey))
	if block == nil {
		return "", errors.New("the signing key is not PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("reading the signing key: %w", err)
	}
	options := (&jose.SignerOptions{}).WithHeader("kid", given.Headers[0].KeyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		return "", fmt.Errorf("preparing to sign: %w", err)
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
