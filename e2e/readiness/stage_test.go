package readiness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// serverName is in the certificate that aggregators make for themselves.
const serverName = "offramp-aggregator.offramp.svc"

// stage is a cluster of a virtual machine in ipvs mode and a namespace in nftables mode, with two aggregators.
type stage struct {
	*testing.T
	// whole is the test that the present step is of.
	whole *testing.T

	cluster     *cluster.Cluster
	lab         *lab.Lab
	ipvs, other *cluster.Node
	near        *cluster.Pod
	secondary   netip.Addr // of ipvs
	dir         string
	proxy       *cluster.Proxy // of ipvs
	caFile      string
	// first and second are the aggregators, as a viewer sees them, orders the first as an operator does.
	first, second offrampv1.FleetServiceClient
	viewer        string
	operator      string
}

const agentPath = "/usr/local/bin/offramp-agent"

func setUp(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t, whole: t, dir: t.TempDir()}
	s.cluster, s.lab = clustertest.Start(t)
	s.applyManifest()
	s.ipvs = clustertest.AddNode(t, s.cluster, cluster.NodeSpec{
		Name: "ipvs", Kernel: "6.1", Proxy: kube.Proxy137, SecondNIC: true, Disk: 64,
		Files: []lab.File{{Path: agentPath, Host: programs.Agent(), Mode: 0o755}},
	})
	s.other = clustertest.AddNode(t, s.cluster, cluster.NodeSpec{Name: "other", Proxy: kube.Proxy137})
	var pods []*cluster.Pod
	for name, node := range map[string]*cluster.Node{"near": s.ipvs, "far": s.other} {
		pod, err := node.AddPod(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
		if node == s.ipvs {
			s.near = pod
		}
	}
	if err := s.cluster.CreateServices(t.Context(), s.ipvs, pods, "cluster", "node-port"); err != nil {
		t.Fatal(err)
	}
	s.otherObjects()
	s.kubeProxies(s.ipvs, s.other)
	s.proxy = clustertest.StartProxy(t, s.ipvs, cluster.ProxyConfig{Mode: "ipvs"})
	clustertest.StartProxy(t, s.other, cluster.ProxyConfig{Mode: "nftables"})
	// Before the agents: one that runs looks at the traffic of a table that does not change every ten minutes alone.
	s.useSecondary()
	s.startAggregators()
	s.startAgents()
	return s
}

// step runs a part of the test, so that the next goes on whatever becomes of it.
func (s *stage) step(name string, part func()) {
	s.whole.Run(name, func(t *testing.T) {
		defer func() { s.T = s.whole }()
		s.T = t
		part()
	})
}

func (s *stage) address(port string) string { return net.JoinHostPort(s.lab.HostAddr(), port) }

func (s *stage) startAggregators() {
	s.Helper()
	// The rights of its own account and nobody else's.
	kubeconfig := s.file("aggregator.conf", s.cluster.Kubeconfig(s.token("offramp-aggregator", "", "", "")))
	for _, port := range []string{"8443", "8444"} {
		s.start("the aggregator at "+port, programs.Aggregator(), "run", "--listen", s.address(port), "--kubeconfig", kubeconfig,
			"--heartbeat-interval", "2s", "--log-format", "json")
	}
	var published struct {
		Data map[string]string `json:"data"`
	}
	eventually(s.T, time.Minute, "an authority is published", func() bool {
		err := s.cluster.API.Do(s.Context(), "GET", "/api/v1/namespaces/offramp/configmaps/offramp-authority", nil, &published)
		return err == nil && published.Data["ca.crt"] != ""
	})
	s.caFile = s.file("ca.pem", published.Data["ca.crt"])
	s.viewer, s.operator = s.token("offramp-viewer", "offramp", "", ""), s.token("offramp-operator", "offramp", "", "")
	s.first, s.second = s.dial("8443", published.Data["ca.crt"]), s.dial("8444", published.Data["ca.crt"])
}

func (s *stage) dial(port, ca string) offrampv1.FleetServiceClient {
	s.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	conn, err := grpc.NewClient("passthrough:///"+s.address(port),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: serverName})),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return s.lab.Dial(ctx, "tcp", address) }))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return offrampv1.NewFleetServiceClient(conn)
}

// startAgents starts one on each node, which reports to both aggregators.
func (s *stage) startAgents() {
	s.Helper()
	const folder = "/var/lib/offramp"
	if err := s.ipvs.Guest.MountDisk(s.Context(), folder); err != nil {
		s.Fatal(err)
	}
	for _, node := range []*cluster.Node{s.ipvs, s.other} {
		dir, program, state := s.dir, programs.Agent(), ""
		if node == s.ipvs {
			dir, program, state = "/root", agentPath, folder
		}
		for name, content := range map[string]string{"ca.pem": s.read(s.caFile), "token-" + node.Name: s.agentToken(node.Name)} {
			if result, err := node.RunInput(s.Context(), []byte(content), "sh", "-c", "cat >"+filepath.Join(dir, name)); err != nil || result.ExitCode != 0 {
				s.Fatalf("%v: %s", err, result.Stderr)
			}
		}
		process, err := node.Start(s.Context(), nil, program, "run", "--node", node.Name, "--aggregator", s.address("8443"), "--aggregator", s.address("8444"),
			"--ca-file", filepath.Join(dir, "ca.pem"), "--token-file", filepath.Join(dir, "token-"+node.Name), "--server-name", serverName,
			"--scan-interval", "2s", "--state-dir", state)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() {
			_, _ = process.Stop(10 * time.Second)
			s.show("the agent of "+node.Name, process.Output())
		})
	}
}

func (s *stage) file(name, content string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

func (s *stage) read(path string) string {
	s.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	return string(content)
}

// output may be written and read at the same time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// start starts a program in the lab's network that ends with the test.
func (s *stage) start(name string, argv ...string) {
	s.Helper()
	out := &output{}
	cmd := s.lab.Command(s.Context(), argv...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.Fatalf("starting %s: %v", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	s.Cleanup(func() {
		_ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		s.show(name, out.text.String())
	})
}

// show prints the end of a log of a test that has failed.
func (s *stage) show(name, log string) {
	s.Helper()
	if s.Failed() {
		said := strings.Split(strings.TrimSpace(log), "\n")
		s.Logf("%s said:\n%s", name, strings.Join(said[max(0, len(said)-20):], "\n"))
	}
}

// as is a context of calls with a token, bounded in time.
func (s *stage) as(token string) context.Context {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(s.Context(), "authorization", "Bearer "+token), 20*time.Second)
	s.Cleanup(cancel)
	return ctx
}

// readiness is what an aggregator says of all.
func (s *stage) readiness(from offrampv1.FleetServiceClient) *offrampv1.GetReadinessResponse {
	s.Helper()
	answer, err := from.GetReadiness(s.as(s.viewer), &offrampv1.GetReadinessRequest{Target: offrampv1.Target_TARGET_NFTABLES})
	if err != nil {
		s.Logf("asking for readiness: %v", err)
	}
	return answer
}

// node is what an aggregator says of one.
func (s *stage) node(from offrampv1.FleetServiceClient, name string) *offrampv1.GetNodeResponse {
	s.Helper()
	answer, err := from.GetNode(s.as(s.viewer), &offrampv1.GetNodeRequest{Node: name, Target: offrampv1.Target_TARGET_NFTABLES})
	if err != nil {
		s.Logf("asking for %s: %v", name, err)
	}
	return answer
}

// find returns the finding of that id, nil for none.
func find(findings []*offrampv1.Finding, id string) *offrampv1.Finding {
	at := slices.IndexFunc(findings, func(f *offrampv1.Finding) bool { return f.GetId() == id && !f.GetUndecided() })
	if at < 0 {
		return nil
	}
	return findings[at]
}

// proves reports whether a finding is there with evidence that has all the words in one line.
func proves(findings []*offrampv1.Finding, id string, words ...string) bool {
	return slices.ContainsFunc(find(findings, id).GetEvidence(), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

// finds waits until the virtual machine has a finding with evidence that has all the words in one line, by both aggregators.
func (s *stage) finds(limit time.Duration, id string, words ...string) {
	s.Helper()
	began := time.Now()
	var told []*offrampv1.Finding
	for _, from := range []offrampv1.FleetServiceClient{s.first, s.second} {
		for {
			told = s.node(from, "ipvs").GetSummary().GetAssessment().GetFindings()
			if proves(told, id, words...) {
				break
			}
			if time.Since(began) > limit {
				s.Errorf("no %s with %q within %s; the node has %s", id, words, limit, listed(told))
				return
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	s.Logf("%s after %s: %q", id, time.Since(began).Round(time.Second), find(told, id).GetEvidence())
}

func listed(findings []*offrampv1.Finding) string {
	var all []string
	for _, finding := range findings {
		all = append(all, fmt.Sprintf("%s (undecided %v) %q", finding.GetId(), finding.GetUndecided(), finding.GetEvidence()))
	}
	return strings.Join(all, "; ")
}

// clusterFinds is finds for the cluster as a whole.
func (s *stage) clusterFinds(id string, words ...string) {
	s.Helper()
	const limit = 20 * time.Second
	began := time.Now()
	for _, from := range []offrampv1.FleetServiceClient{s.first, s.second} {
		for {
			told := s.readiness(from).GetClusterFindings()
			if proves(told, id, words...) {
				s.Logf("cluster: %s: %q", id, find(told, id).GetEvidence())
				break
			}
			if time.Since(began) > limit {
				s.Errorf("no %s with %q within %s; there is %s", id, words, limit, listed(told))
				return
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
}
