package stream

import (
	"crypto/tls"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// An aggregator that is found by one name may have a certificate for another, as behind a Service of its own for agents.
func TestFoundByOneNameAndCalledByAnother(t *testing.T) {
	for want, creds := range map[string]credentials.TransportCredentials{
		"aggregator.svc":    credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: "aggregator.svc"}),
		"replicas.svc:8443": insecure.NewCredentials(),
	} {
		p := &peer{config: Config{Credentials: creds}, authority: "replicas.svc:8443"}
		conn, err := grpc.NewClient("passthrough:///192.0.2.1:8443", p.dialOptions()...)
		if err != nil {
			t.Errorf("called %s: %v", want, err)
			continue
		}
		if got := conn.CanonicalTarget(); got != "passthrough:///192.0.2.1:8443" || p.called() != want {
			t.Errorf("connects to %s as %s, want %s", got, p.called(), want)
		}
		_ = conn.Close()
	}
}
