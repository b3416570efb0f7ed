package auth

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// What a client certificate says of its holder. Nodes are named as in kubelets' own client certificates, so that these
// will do (https://kubernetes.io/docs/reference/access-authn-authz/node/).
const (
	// NodePrefix begins the common name of a node's certificate: "system:node:worker-1". Its organization is NodeGroup.
	NodePrefix = "system:node:"
	NodeGroup  = "system:nodes"
	// ViewerGroup and OperatorGroup are the organizations of people's certificates.
	ViewerGroup   = "offramp:viewers"
	OperatorGroup = "offramp:operators"
)

// Certificates authenticates callers by client certificates that TLS has verified already.
type Certificates struct{}

// Authenticate implements Authenticator.
func (Certificates) Authenticate(ctx context.Context) (Caller, error) {
	certificate := clientCertificate(ctx)
	if certificate == nil {
		return Caller{}, status.Error(codes.Unauthenticated, "no client certificate came with the connection")
	}
	caller := Caller{Name: certificate.Subject.CommonName, Until: certificate.NotAfter}
	node, isNode := strings.CutPrefix(caller.Name, NodePrefix)
	groups := certificate.Subject.Organization
	isNode = isNode && slices.Contains(groups, NodeGroup)
	viewer, operator := slices.Contains(groups, ViewerGroup), slices.Contains(groups, OperatorGroup)
	switch {
	case isNode && node != "" && !viewer && !operator:
		caller.Kind, caller.Node = Agent, node
	case !isNode && (viewer || operator):
		caller.Kind = Person
		caller.permit = func(_ context.Context, what Action) error { return permitGroup(caller.Name, operator, what) }
	default:
		return caller, status.Errorf(codes.PermissionDenied, "the certificate of %q is neither a node's nor a person's", caller.Name)
	}
	return caller, nil
}

// clientCertificate is nil for a connection without one that was verified.
func clientCertificate(ctx context.Context) *x509.Certificate {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// permitGroup lets viewers look and operators do everything.
func permitGroup(name string, operator bool, what Action) error {
	if operator || what.Resource == nodes {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s is a viewer and may not %s", name, what)
}

// Either authenticates by a token where one came, and else by the client certificate.
type Either struct {
	Tokens       Authenticator
	Certificates Authenticator
}

// Authenticate implements Authenticator.
func (e Either) Authenticate(ctx context.Context) (Caller, error) {
	token, err := bearer(ctx)
	if err != nil {
		return Caller{}, err
	}
	if token == "" && clientCertificate(ctx) != nil {
		return e.Certificates.Authenticate(ctx)
	}
	return e.Tokens.Authenticate(ctx)
}
