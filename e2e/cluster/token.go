package cluster

import (
	"context"
	"fmt"
)

// CreateServiceAccount makes a service account.
func (c *Cluster) CreateServiceAccount(ctx context.Context, namespace, name string) error {
	account := map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]string{"name": name}}
	return c.API.Do(ctx, "POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts", account, nil)
}

// NodeToken asks for a token of a service account that is bound to a node and lasts an hour. audience is whom it is
// for; empty is the API server itself.
func (c *Cluster) NodeToken(ctx context.Context, namespace, account, node, audience string) (string, error) {
	var bound struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := c.API.Do(ctx, "GET", "/api/v1/nodes/"+node, nil, &bound); err != nil {
		return "", err
	}
	spec := map[string]any{
		"expirationSeconds": 3600,
		"boundObjectRef":    map[string]string{"kind": "Node", "apiVersion": "v1", "name": node, "uid": bound.Metadata.UID},
	}
	if audience != "" {
		spec["audiences"] = []string{audience}
	}
	request := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", namespace, account)
	return answer.Status.Token, c.API.Do(ctx, "POST", path, request, &answer)
}

// TokenReview is what the API server says of a token.
type TokenReview struct {
	// Authenticated says whether the token is good for the audience that was asked about.
	Authenticated bool
	// Username is whose it is, and Node the node that it is bound to, if any.
	Username, Node string
}

// ReviewToken asks the API server about a token.
func (c *Cluster) ReviewToken(ctx context.Context, token, audience string) (TokenReview, error) {
	request := map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
		"spec": map[string]any{"token": token, "audiences": []string{audience}},
	}
	var answer struct {
		Status struct {
			Authenticated bool `json:"authenticated"`
			User          struct {
				Username string              `json:"username"`
				Extra    map[string][]string `json:"extra"`
			} `json:"user"`
		} `json:"status"`
	}
	if err := c.API.Do(ctx, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", request, &answer); err != nil {
		return TokenReview{}, err
	}
	review := TokenReview{Authenticated: answer.Status.Authenticated, Username: answer.Status.User.Username}
	if nodes := answer.Status.User.Extra["authentication.kubernetes.io/node-name"]; len(nodes) > 0 {
		review.Node = nodes[0]
	}
	return review, nil
}
