package tlsfiles

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials are gRPC's credentials for these settings. The files are read once here, so that a wrong path is told at
// once, and again at each handshake.
func (c Client) Credentials() (credentials.TransportCredentials, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.InsecurePlaintext {
		return insecure.NewCredentials(), nil
	}
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return &rereading{TransportCredentials: credentials.NewTLS(config), files: c}, nil
}

// rereading are TLS credentials that take up renewed files.
type rereading struct {
	credentials.TransportCredentials
	files Client
}

// ClientHandshake reads the files and shakes hands with what they say now. gRPC's own credentials look for the authority's
// name alone, whatever the configuration names.
func (r *rereading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.files.Config()
	if err != nil {
		return nil, nil, err
	}
	if r.files.ServerName != "" {
		authority = r.files.ServerName
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone copies the credentials.
func (r *rereading) Clone() credentials.TransportCredentials {
	return &rereading{TransportCredentials: r.TransportCredentials.Clone(), files: r.files}
}
