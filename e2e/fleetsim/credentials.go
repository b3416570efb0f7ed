package fleetsim

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// named are TLS credentials that expect the aggregator's own name in its certificate, whatever it was dialled as: the agent's
// --server-name.
type named struct {
	credentials.TransportCredentials
}

func newNamed(config *tls.Config) named { return named{credentials.NewTLS(config)} }

// ClientHandshake implements credentials.TransportCredentials.
func (n named) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, serverName, conn)
}

// Info leaves the name out: gRPC would hold it against the address.
func (n named) Info() credentials.ProtocolInfo {
	info := n.TransportCredentials.Info()
	info.ServerName = "" //nolint:staticcheck // it is what gRPC looks at
	return info
}

// Clone implements credentials.TransportCredentials.
func (n named) Clone() credentials.TransportCredentials {
	return named{n.TransportCredentials.Clone()}
}
