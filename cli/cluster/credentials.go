package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// claimedKey is the metadata key of the name that the person claims (aggregator/auth.ClaimedKey).
const claimedKey = "offramp-claimed-user-bin"

// Says begins what the Kubernetes API server, not the aggregator, says of a call.
const Says = "the Kubernetes API server: "

// PerCall are gRPC's credentials of a call: the account's token, and the claimed name. They go over TLS alone.
func (c *Cluster) PerCall() credentials.PerRPCCredentials { return perCall{c} }

type perCall struct{ cluster *Cluster }

// GetRequestMetadata asks for a token where there is none.
func (p perCall) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, claimed, err := p.cluster.Token(ctx)
	if err != nil {
		return nil, status.Error(codeOf(err), Says+err.Error())
	}
	sent := map[string]string{"authorization": "Bearer " + token}
	if claimed != "" {
		sent[claimedKey] = claimed
	}
	return sent, nil
}

// RequireTransportSecurity is always true.
func (perCall) RequireTransportSecurity() bool { return true }

// codeOf is the status of the API server's error, of those that credentials may end a call with.
func codeOf(err error) codes.Code {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return codes.PermissionDenied
	case apierrors.IsUnauthorized(err):
		return codes.Unauthenticated
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	default:
		return codes.Unavailable
	}
}

// Transport are TLS credentials that trust what the aggregator publishes, read anew for each connection. serverName is the
// name to expect; empty is ServerName.
func (c *Cluster) Transport(serverName string) credentials.TransportCredentials {
	if serverName == "" {
		serverName = c.ServerName()
	}
	base := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: serverName})
	return &transport{TransportCredentials: base, cluster: c, name: serverName}
}

type transport struct {
	credentials.TransportCredentials
	cluster *Cluster
	name    string
}

// ClientHandshake looks for the certificates to trust and shakes hands.
func (t *transport) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	pem, err := t.cluster.Roots(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf(Says+"%w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, nil, errors.New("the aggregator's published CA holds no certificate")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: t.name}
	return credentials.NewTLS(config).ClientHandshake(ctx, t.name, conn)
}

// Clone copies the credentials.
func (t *transport) Clone() credentials.TransportCredentials {
	return &transport{TransportCredentials: t.TransportCredentials.Clone(), cluster: t.cluster, name: t.name}
}
