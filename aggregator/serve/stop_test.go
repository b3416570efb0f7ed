package serve

import (
	"context"
	"net"
	"testing"
	"time"
)

// Connections that never get as far as a call do not keep a server from stopping: scanners and load balancers leave such.
func TestAStopDoesNotWaitForHandshakes(t *testing.T) {
	for name, sent := range map[string]string{"silent": "", "stuck": "\x16\x03\x01"} {
		t.Run(name, func(t *testing.T) {
			config, err := TLSConfig(writePair(t, t.TempDir(), 1), quiet())
			if err != nil {
				t.Fatal(err)
			}
			l := startLab(t, short(), func(c *Config) { c.TLS = config })
			var dialer net.Dialer
			conn, err := dialer.DialContext(context.Background(), "tcp", l.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.Write([]byte(sent)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			l.stop()
			if took := time.Since(began); took > short().drain+time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
