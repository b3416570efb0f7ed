package readiness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/e2e/cluster"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// TestReadiness asks both aggregators about one cluster in which much is wrong, all of it for real.
func TestReadiness(t *testing.T) {
	s := setUp(t)
	eventually(t, 2*time.Minute, "both nodes are in view of both aggregators", func() bool {
		return s.inView(s.first) && s.inView(s.second)
	})
	s.step("rights suffice", s.rightsSuffice)
	s.step("the cluster", s.clusterIsFound)
	s.step("nodes without agents", s.nodesWithoutAgents)
	s.step("a client on a secondary address", s.secondaryAddress)
	s.step("one Service on two nodes", s.service)
	s.step("an acceptance", s.acceptance)
	s.step("a configuration that is not in use", s.configurationNotInUse)
	s.step("a deleted Service", s.deletedService)
	s.step("a first sync that failed for good", s.failedFirstSync)
}

func (s *stage) inView(from offrampv1.FleetServiceClient) bool {
	s.Helper()
	ipvs, other := s.node(from, "ipvs").GetSummary(), s.node(from, "other").GetSummary()
	return ipvs.GetConnected() && ipvs.GetAssessment().GetRunningMode() == offrampv1.ProxyMode_PROXY_MODE_IPVS &&
		other.GetConnected() && other.GetAssessment().GetRunningMode() == offrampv1.ProxyMode_PROXY_MODE_NFTABLES
}

// rightsSuffice: nothing of what the aggregator follows is refused to its account.
func (s *stage) rightsSuffice() {
	s.Helper()
	eventually(s.T, 30*time.Second, "everything of the cluster is read", func() bool {
		answer, err := s.first.GetCluster(s.as(s.viewer), &offrampv1.GetClusterRequest{})
		return err == nil && len(answer.GetCluster().GetSources()) == 7 && !slices.ContainsFunc(answer.GetCluster().GetSources(), func(source *offrampv1.ClusterSource) bool {
			return source.GetState() != offrampv1.SectionState_SECTION_STATE_PRESENT
		})
	})
	if unread := s.readiness(s.first).GetUnread(); len(unread) > 0 {
		s.Errorf("unread: %v", unread)
	}
}

func (s *stage) clusterIsFound() {
	s.Helper()
	s.clusterFinds("ipvs-configured", "kube-system/kube-proxy")
	// EKS names the object and the key otherwise.
	s.clusterFinds("mode-not-explicit", "kube-system/kube-proxy-config")
	s.clusterFinds("kube-proxy-replaced", "cilium", "v1.18.2")
	s.clusterFinds("address-clash", "default/clash", "198.18.250.7", "silent")
}

func (s *stage) nodesWithoutAgents() {
	s.Helper()
	answer := s.readiness(s.first)
	if answer.GetNotApplicable() != 2 || answer.GetNeverSeen() != 1 || !slices.Equal(answer.GetNeverSeenSamples(), []string{"silent"}) || answer.GetUnknown() < 1 {
		s.Errorf("%d not applicable, %d never seen %v, %d unknown", answer.GetNotApplicable(), answer.GetNeverSeen(), answer.GetNeverSeenSamples(), answer.GetUnknown())
	}
	list, err := s.second.ListNodes(s.as(s.viewer), &offrampv1.ListNodesRequest{Target: offrampv1.Target_TARGET_NFTABLES})
	if err != nil {
		s.Fatal(err)
	}
	phases := map[string]offrampv1.Phase{}
	for _, node := range list.GetNodes() {
		phases[node.GetNode()] = node.GetAssessment().GetPhase()
		if node.GetNode() == "silent" && node.GetAssessment().GetReady() == offrampv1.Verdict_VERDICT_READY {
			s.Error("a node without an agent is ready")
		}
	}
	if phases["windows"] != offrampv1.Phase_PHASE_NOT_APPLICABLE || phases["virtual"] != offrampv1.Phase_PHASE_NOT_APPLICABLE || len(phases) != 5 {
		s.Errorf("phases: %v", phases)
	}
}

// load keeps one connection open to a target until the whole test ends.
func (s *stage) load(from interface {
	StartLoad(ctx context.Context, targets ...string) (*cluster.Load, error)
}, target string) {
	s.Helper()
	load, err := from.StartLoad(s.whole.Context(), "it=long:"+target)
	if err != nil {
		s.Fatal(err)
	}
	s.whole.Cleanup(func() { _, _ = load.Stop() })
}

// useSecondary makes another node a client of a node port on an address that nftables mode will not answer on.
func (s *stage) useSecondary() {
	s.Helper()
	text, err := cluster.Output(s.Context(), s.ipvs, "ip", "-4", "-o", "address", "show")
	if err != nil {
		s.Fatal(err)
	}
	// What cluster.NodeSpec.SecondNIC gives it beside its own on the same link.
	network := netip.MustParsePrefix("198.18.100.0/24")
	for _, word := range strings.Fields(text) {
		if prefix, err := netip.ParsePrefix(word); err == nil && network.Contains(prefix.Addr()) {
			s.secondary = prefix.Addr()
		}
	}
	s.load(s.other, s.secondary.String()+":30080")
}

func (s *stage) secondaryAddress() {
	s.Helper()
	s.finds(time.Minute, "node-ports-on-other-addresses", s.secondary.String(), "30080", s.other.V4.String())
}

// service: one Service as both nodes see it, with real connections.
func (s *stage) service() {
	s.Helper()
	for range 3 {
		s.load(s.near, "10.96.0.10:80")
	}
	var nodes map[string]*offrampv1.NodeService
	var summary *offrampv1.ServiceSummary
	eventually(s.T, time.Minute, "connections to default/cluster are told", func() bool {
		nodes, summary = s.ask("default", "cluster")
		return connections(nodes["ipvs"]) >= 3
	})
	s.Logf("default/cluster: %v, %v", nodes, summary)
	if !has(nodes["ipvs"], "virtual server", "10.96.0.10") || nodes["ipvs"].GetRunningMode() != offrampv1.ProxyMode_PROXY_MODE_IPVS {
		s.Errorf("ipvs says %v", nodes["ipvs"])
	}
	if !slices.ContainsFunc(nodes["ipvs"].GetEntries(), func(e *offrampv1.ServiceEntry) bool {
		return e.GetKind() == "real server" && strings.Contains(strings.Join(e.GetNames(), " "), "default/cluster on ipvs")
	}) {
		s.Errorf("no real server has the endpoint's name: %v", nodes["ipvs"])
	}
	if other := nodes["other"]; len(other.GetEntries()) == 0 || !has(other, "nftables", "10.96.0.10") {
		s.Errorf("other says %v", other)
	}
	if summary.GetAsked() < 2 || summary.GetAnswered() != 2 {
		s.Errorf("asked and answered: %v", summary)
	}
}

func (s *stage) ask(namespace, name string) (map[string]*offrampv1.NodeService, *offrampv1.ServiceSummary) {
	s.Helper()
	nodes := map[string]*offrampv1.NodeService{}
	stream, err := s.first.GetService(s.as(s.viewer), &offrampv1.GetServiceRequest{Namespace: namespace, Name: name})
	if err != nil {
		s.Fatal(err)
	}
	var summary *offrampv1.ServiceSummary
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nodes, summary
		}
		if err != nil {
			s.Fatalf("asking for %s/%s: %v", namespace, name, err)
		}
		if node := event.GetNode(); node != nil {
			nodes[node.GetNode()] = node
		}
		if event.GetSummary() != nil {
			summary = event.GetSummary()
		}
	}
}

func connections(node *offrampv1.NodeService) uint64 {
	var all uint64
	for _, entry := range node.GetEntries() {
		if entry.GetKind() == "real server" {
			all += entry.GetActiveConnections()
		}
	}
	return all
}

func has(node *offrampv1.NodeService, kind, text string) bool {
	return slices.ContainsFunc(node.GetEntries(), func(e *offrampv1.ServiceEntry) bool {
		return strings.Contains(e.GetKind(), kind) && strings.Contains(e.GetText(), text)
	})
}

// acceptance: a word given to one aggregator counts with both, stands in the API, and can be taken back.
func (s *stage) acceptance() {
	s.Helper()
	const id = "node-ports-on-other-addresses"
	until := timestamppb.New(time.Now().Add(time.Hour))
	if _, err := s.first.AcceptFinding(s.as(s.viewer), &offrampv1.AcceptFindingRequest{FindingId: id, Reason: "a test", Until: until}); err == nil {
		s.Error("a viewer may accept a finding")
	}
	answer, err := s.first.AcceptFinding(s.as(s.operator), &offrampv1.AcceptFindingRequest{FindingId: id, Reason: "clients move next week", Until: until})
	if err != nil {
		s.Fatal(err)
	}
	accepted := func(from offrampv1.FleetServiceClient) *offrampv1.Acceptance {
		return find(s.node(from, "ipvs").GetSummary().GetAssessment().GetFindings(), id).GetAccepted()
	}
	eventually(s.T, 30*time.Second, "both aggregators show the acceptance", func() bool {
		return accepted(s.first).GetReason() == "clients move next week" && accepted(s.second).GetReason() == "clients move next week"
	})
	if author := accepted(s.second).GetAuthor(); !strings.Contains(author, "offramp-operator") {
		s.Errorf("accepted by %q", author)
	}
	var kept struct{ Data map[string]string }
	const path = "/api/v1/namespaces/offramp/configmaps/offramp-accepted-findings"
	if err := s.cluster.API.Do(s.Context(), "GET", path, nil, &kept); err != nil || len(kept.Data) != 1 {
		s.Errorf("the ConfigMap has %v, %v", kept.Data, err)
	}
	list, err := s.second.ListAcceptances(s.as(s.viewer), &offrampv1.ListAcceptancesRequest{})
	if err != nil || len(list.GetAcceptances()) != 1 {
		s.Fatalf("the second lists %v, %v", list, err)
	}
	if _, err := s.second.WithdrawAcceptance(s.as(s.operator), &offrampv1.WithdrawAcceptanceRequest{Id: list.GetAcceptances()[0].GetId()}); err != nil {
		s.Fatalf("withdrawing %v: %v", answer, err)
	}
	eventually(s.T, 30*time.Second, "neither shows it once it is taken back", func() bool {
		return accepted(s.first) == nil && accepted(s.second) == nil
	})
}

// configurationNotInUse: the ConfigMap says nftables, and the pods, which nobody restarted, still run ipvs.
func (s *stage) configurationNotInUse() {
	s.Helper()
	const config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	patch := map[string]any{"data": map[string]string{"config.conf": config}}
	if err := s.cluster.API.Do(s.Context(), "PATCH", "/api/v1/namespaces/kube-system/configmaps/kube-proxy", patch, nil); err != nil {
		s.Fatal(err)
	}
	s.clusterFinds("config-not-in-use", "kube-system/kube-proxy")
	if mode := s.node(s.first, "ipvs").GetSummary().GetAssessment().GetRunningMode(); mode != offrampv1.ProxyMode_PROXY_MODE_IPVS {
		s.Errorf("the node runs %v", mode)
	}
}

// deletedService: kube-proxy does not see that a Service goes, and its virtual server and address stay.
func (s *stage) deletedService() {
	s.Helper()
	if err := s.proxy.End(); err != nil {
		s.Error(err)
	}
	if err := s.cluster.API.Do(s.Context(), "DELETE", "/api/v1/namespaces/default/services/doomed", nil, nil); err != nil {
		s.Fatal(err)
	}
	s.finds(3*time.Minute, "unexplained-virtual-servers", "10.96.0.99:80")
	s.finds(30*time.Second, "unexplained-addresses", "10.96.0.99")
	for _, id := range []string{"unexplained-virtual-servers", "unexplained-addresses"} {
		if told := find(s.node(s.first, "ipvs").GetSummary().GetAssessment().GetFindings(), id); len(told.GetEvidence()) != 1 {
			s.Errorf("%s: %q, want the deleted Service's alone", id, told.GetEvidence())
		}
	}
}

// failedFirstSync: a match that cannot load makes the first sync of iptables mode fail for good, with health green.
func (s *stage) failedFirstSync() {
	s.Helper()
	if _, err := cluster.Output(s.Context(), s.ipvs, "find", "/usr/lib", "-name", "libxt_statistic.so", "-exec", "rm", "{}", "+"); err != nil {
		s.Fatal(err)
	}
	p, err := s.ipvs.StartProxy(s.Context(), cluster.ProxyConfig{Mode: "iptables"})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = p.End() })
	eventually(s.T, 2*time.Minute, "both families' restores fail", func() bool {
		return strings.Count(p.Output(), `"Failed to execute iptables-restore"`) >= 2
	})
	s.finds(time.Minute, "kube-proxy-not-in-sync", "IPv4: no sync yet")
	s.finds(time.Minute, "kube-proxy-not-in-sync", "IPv6: no sync yet")
	s.finds(time.Minute, "modes-disagree")
	// The node's own memory tells of the change, on a disk.
	history := s.history()
	if !history.GetDurable() || !slices.ContainsFunc(history.GetEntries(), func(e *offrampv1.HistoryEntry) bool {
		return e.GetKind() == "mode" && strings.HasPrefix(e.GetWhat(), "ipvs to ")
	}) {
		s.Errorf("the node remembers %v", history)
	}
	changes, err := s.second.ListChanges(s.as(s.viewer), &offrampv1.ListChangesRequest{Node: "ipvs", Limit: 10})
	if err != nil || len(changes.GetChanges()) == 0 {
		s.Errorf("changes: %v, %v", changes, err)
	}
	s.Log(fmt.Sprint("changes: ", changes.GetChanges()))
}

func (s *stage) history() *offrampv1.HistoryFacts {
	s.Helper()
	for _, section := range s.node(s.first, "ipvs").GetFacts().GetSections() {
		if section.GetKind() == offrampv1.SectionKind_SECTION_KIND_HISTORY {
			return section.GetStable().GetHistory()
		}
	}
	return nil
}
