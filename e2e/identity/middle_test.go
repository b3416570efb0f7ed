package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"offramp.dev/offramp/aggregator/authority"
	"offramp.dev/offramp/e2e/programs"
)

func kubectlPath() string { return programs.Kubectl() }

// middle is somebody on the way, with a certificate for the right name by a CA of his own. He notes what he can read.
type middle struct {
	address string
	mu      sync.Mutex
	read    bytes.Buffer
}

// nowhere keeps nothing.
type nowhere struct{}

func (nowhere) Load(context.Context) (map[string][]byte, string, error) { return nil, "", nil }
func (nowhere) Save(context.Context, map[string][]byte, string) error   { return nil }
func (nowhere) Publish(context.Context, []byte) error                   { return nil }

func (s *stage) startMiddle() *middle {
	s.Helper()
	theirs := authority.New(authority.Config{Store: nowhere{}, Names: []string{"offramp-aggregator.offramp.svc"}, Log: slog.New(slog.DiscardHandler)})
	if err := theirs.Refresh(s.Context()); err != nil {
		s.Fatal(err)
	}
	socket, err := s.lab.Listen(s.Context(), "tcp", s.lab.HostAddr()+":0")
	if err != nil {
		s.Fatal(err)
	}
	m := &middle{address: socket.Addr().String()}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return theirs.Certificate() }}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			all.Go(func() { m.serve(tls.Server(conn, config)) })
		}
	})
	s.Cleanup(func() { _ = socket.Close(); all.Wait() })
	return m
}

func (m *middle) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	content, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read.Write(content)
}

func (m *middle) heard() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read.String()
}

// Without Offramp's CA nobody on the way gets a token, of a node or of a person.
func TestManInTheMiddle(t *testing.T) {
	s := setUp(t)
	m := s.startMiddle()
	token := s.file("token-node-m", s.agentToken("node-m"))
	agent := start(t, s.lab, "the agent of node-m", s.agentCommand("node-m", m.address, token)...)
	agent.says(t, 0, "unknown authority")
	s.bind("ada", "offramp-be-viewer")
	out, code := s.run(kubectlPath(), "--kubeconfig", s.admin, "--as", "ada", "--aggregator", m.address, "status")
	if code != 1 || !strings.Contains(out, "signed by nobody we trust") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if heard := m.heard(); heard != "" {
		t.Errorf("the man in the middle read %d bytes", len(heard))
	}
	if s.summary("node-m") != nil {
		t.Error("node-m is in view")
	}
	s.stands("somebody stood in the middle")
}
