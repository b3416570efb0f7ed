package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	audience = "offramp"
	offramp  = "offramp" // the namespace
	port     = "8443"
	// reviewEvery is how often the aggregator looks again whether a connected agent's pod is there.
	reviewEvery = 3 * time.Second
)

// stage is a cluster with an aggregator that asks its API server, and the agents of two nodes, each with its own token.
type stage struct {
	*testing.T

	cluster    *cluster.Cluster
	lab        *lab.Lab
	dir        string
	aggregator *process
	roots      *x509.CertPool
	caFile     string
	agents     map[string]*process
	// admin is the administrator's kubeconfig.
	admin string
	// viewer is a connection and the token of somebody who looks.
	viewer      offrampv1.FleetServiceClient
	viewerToken string
}

func setUp(t *testing.T) *stage {
	t.Helper()
	s := withAggregator(t)
	for _, node := range []string{"node-a", "node-b"} {
		s.startAgent(node)
	}
	eventually(t, 60*time.Second, "both nodes are in view", func() bool { return s.connected("node-a") && s.connected("node-b") })
	return s
}

// withAggregator is the cluster and the aggregator, no agent yet.
func withAggregator(t *testing.T, more ...string) *stage {
	t.Helper()
	s := &stage{T: t, dir: t.TempDir(), agents: map[string]*process{}}
	s.cluster, s.lab = clustertest.Start(t)
	applyManifest(t, s.cluster.API)
	s.admin = s.file("admin.conf", s.cluster.Kubeconfig(""))
	s.startAggregator(more...)
	s.readAuthority()
	s.viewer, s.viewerToken = offrampv1.NewFleetServiceClient(s.dial()), s.person("offramp-viewer")
	return s
}

func (s *stage) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

func (s *stage) address() string { return s.addressOf(port) }

func (s *stage) addressOf(port string) string { return net.JoinHostPort(s.lab.HostAddr(), port) }

// startAggregator starts it with the rights of its own account and nobody else's.
func (s *stage) startAggregator(more ...string) {
	s.Helper()
	s.aggregator = s.newAggregator(port, more...)
}

// newAggregator is one more, of the same account.
func (s *stage) newAggregator(port string, more ...string) *process {
	s.Helper()
	token := request(s.T, s.cluster.API, offramp, "offramp-aggregator", "", "", "")
	kubeconfig := s.file("aggregator.conf", s.cluster.Kubeconfig(token))
	started := start(s.T, s.lab, "the aggregator at "+port, append([]string{programs.Aggregator(), "run", "--listen", s.addressOf(port),
		"--kubeconfig", kubeconfig, "--heartbeat-interval", "1s", "--token-review-interval", reviewEvery.String(), "--log-format", "json"}, more...)...)
	started.says(s.T, 0, `"msg":"listening"`)
	return started
}

// readAuthority takes the CA from where the aggregator publishes it.
func (s *stage) readAuthority() {
	s.Helper()
	var published struct {
		Data map[string]string `json:"data"`
	}
	if err := s.cluster.API.Do(s.Context(), "GET", "/api/v1/namespaces/offramp/configmaps/offramp-authority", nil, &published); err != nil {
		s.Fatal(err)
	}
	s.roots = x509.NewCertPool()
	if !s.roots.AppendCertsFromPEM([]byte(published.Data["ca.crt"])) {
		s.Fatal("the ConfigMap has no CA")
	}
	s.caFile = s.file("ca.pem", published.Data["ca.crt"])
}

// agentToken is what kubelet would give the agent's pod on a node.
func (s *stage) agentToken(node string) string {
	s.Helper()
	pod := "agent-on-" + node
	uid := addPod(s.T, s.cluster.API, offramp, "offramp-agent", pod, node)
	return request(s.T, s.cluster.API, offramp, "offramp-agent", audience, pod, uid)
}

func (s *stage) startAgent(node string) {
	s.Helper()
	token := s.file("token-"+node, s.agentToken(node))
	s.agents[node] = start(s.T, s.lab, "the agent of "+node, s.agentCommand(node, s.address(), token)...)
}

func (s *stage) agentCommand(node, address, tokenFile string) []string {
	return []string{programs.Agent(), "run", "--node", node, "--aggregator", address, "--ca-file", s.caFile,
		"--server-name", "offramp-aggregator.offramp.svc", "--token-file", tokenFile, "--scan-interval", "1s", "--state-dir", filepath.Join(s.dir, "state-of-"+node), "--assert-no-kube-proxy", "a test"}
}

// dial connects as any program in the lab could.
func (s *stage) dial() *grpc.ClientConn {
	s.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.roots, ServerName: "offramp-aggregator.offramp.svc"}
	conn, err := grpc.NewClient("passthrough:///"+s.address(), grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return s.lab.Dial(ctx, "tcp", address) }))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

// as is a context of calls with a token, bounded in time.
func (s *stage) as(token string) context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), 15*time.Second)
	s.Cleanup(cancel)
	if token == "" {
		return ctx
	}
	return metadataFor(ctx, token)
}

func metadataFor(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// person asks for a token of one of people's accounts.
func (s *stage) person(account string) string {
	s.Helper()
	return request(s.T, s.cluster.API, offramp, account, audience, "", "")
}

// summary is what the aggregator knows of a node, as a viewer is told; nil for nothing.
func (s *stage) summary(node string) *offrampv1.NodeSummary {
	s.Helper()
	ctx, cancel := context.WithTimeout(metadataFor(s.Context(), s.viewerToken), 10*time.Second)
	defer cancel()
	answer, err := s.viewer.ListNodes(ctx, &offrampv1.ListNodesRequest{})
	if err != nil {
		s.Logf("a viewer asks for the nodes: %v", err)
	}
	for _, summary := range answer.GetNodes() {
		if summary.GetNode() == node {
			return summary
		}
	}
	return nil
}

func (s *stage) connected(node string) bool {
	s.Helper()
	return s.summary(node).GetConnected()
}

// stands holds that the real nodes go on as if nothing had happened.
func (s *stage) stands(after string) {
	s.Helper()
	for node, agent := range s.agents {
		eventually(s.T, 10*time.Second, "after "+after+" "+node+" is heard of", func() bool {
			summary := s.summary(node)
			return summary.GetConnected() && time.Since(summary.GetLastSeen().AsTime()) < 3*time.Second && summary.GetAgentVersion() != liar
		})
		select {
		case <-agent.ended:
			s.Errorf("after %s the agent of %s is gone", after, node)
		default:
		}
	}
}

// run runs a program in the lab to its end.
func (s *stage) run(argv ...string) (text string, code int) {
	s.Helper()
	p := start(s.T, s.lab, filepath.Base(argv[0]), argv...)
	select {
	case <-p.ended:
	case <-time.After(60 * time.Second):
		s.Fatalf("%v does not end", argv)
	}
	return p.out.String(), p.cmd.ProcessState.ExitCode()
}

// kubectl runs kubectl-offramp as a user of the cluster, with nothing but a kubeconfig and the address.
func (s *stage) kubectl(user string, args ...string) (string, int) {
	s.Helper()
	return s.run(append([]string{programs.Kubectl(), "--kubeconfig", s.admin, "--as", user, "--aggregator", s.address()}, args...)...)
}
