package cluster

import (
	"encoding/base64"
	"fmt"
)

// Kubeconfig is a kubeconfig for whoever holds a token; the administrator's own where it is empty. It works in the lab's
// network.
func (c *Cluster) Kubeconfig(token string) string {
	if token == "" {
		token = c.API.token
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: somebody}}]
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: somebody, user: {token: %q}}]
`, c.API.base, base64.StdEncoding.EncodeToString([]byte(c.plane.ca)), token)
}
