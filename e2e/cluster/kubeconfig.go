package cluster

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig is a kubeconfig for whoever holds a token; the administrator's own where it is empty. It works in the lab's
// network.
func (c *Cluster) Kubeconfig(token string) string {
	return c.KubeconfigAt(c.plane.api.base, token)
}

// KubeconfigAt is the same for who reaches the API server by another address. Its certificate is for 127.0.0.1, too.
func (c *Cluster) KubeconfigAt(server, token string) string {
	if token == "" {
		token = c.API.token
	}
	return c.plane.kubeconfig(server, token)
}

// KubeletToken is the token of a node's kubelet, "" for a node that Options.Kubelets does not name.
func (c *Cluster) KubeletToken(node string) string { return c.plane.kubelets[node] }

func (p *plane) kubeconfig(server, token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: somebody}}]
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: somebody, user: {token: %q}}]
`, server, base64.StdEncoding.EncodeToString([]byte(p.ca)), token)
}
