// Package auth says who is calling and whether they may.
//
// Agents show a projected ServiceAccount token whose claims name their pod and node, or a client certificate. People show a
// short-lived token of a ServiceAccount of Offramp's own namespace, never their own credentials. Every gRPC method is in one
// table with who may call it; what is not in the table is refused. The package knows no Kubernetes client: what it asks of
// the API server is the interface API.
package auth
