package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/aggregator/fleet"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// kube is what a Kubernetes API says, changed by hand.
type kube struct {
	facts *v1.ClusterFacts
	kept  []*v1.Acceptance
	fails error
}

func (k *kube) Facts() *v1.ClusterFacts       { return k.facts }
func (k *kube) Acceptances() []*v1.Acceptance { return k.kept }
func (k *kube) List() []*v1.Acceptance        { return k.kept }

func (k *kube) Put(_ context.Context, acceptance *v1.Acceptance) error {
	if k.fails == nil {
		acceptance.Id = "id-1"
		k.kept = append(k.kept, acceptance)
	}
	return k.fails
}

func (k *kube) Delete(_ context.Context, id string) (bool, error) {
	return id == "id-1", k.fails
}

func (k *kube) names(context.Context, string, string) (map[string]string, error) {
	return map[string]string{"10.244.1.7": "pod default/web-1 on a", "fd00:244::7": "pod default/web-1 on a"}, k.fails
}

// inCluster is a lab whose aggregator asks a Kubernetes API.
func inCluster(t *testing.T, k *kube, more ...func(*Config)) *lab {
	t.Helper()
	store := fleet.New(fleet.Config{Assess: (&lab{}).assess, HeartbeatInterval: time.Minute, Log: quiet(), Cluster: k})
	l := startLab(t, short(), func(config *Config) {
		config.Store, config.Cluster, config.Acceptances, config.EndpointNames = store, k, k, k.names
		for _, change := range more {
			change(config)
		}
	})
	l.store = store
	return l
}

func webCluster() *kube {
	return &kube{facts: &v1.ClusterFacts{
		ServerVersion: "v1.37.2",
		Nodes:         []*v1.ClusterNode{{Name: "a", Labels: map[string]string{"pool": "blue"}}, {Name: "quiet", Labels: map[string]string{"pool": "green"}}},
		Services: []*v1.ClusterService{{
			Namespace: "default", Name: "web", ClusterIps: []string{"10.96.0.10"}, ExternalIps: []string{"203.0.113.9"},
			Ports: []*v1.ClusterServicePort{{Protocol: "TCP", Port: 80, NodePort: 30080}, {Protocol: "UDP", Port: 53}},
		}, {Namespace: "default", Name: "bare"}},
	}}
}

func TestSelectorsNeedTheAPI(t *testing.T) {
	alone := startLab(t, short(), nil)
	if _, err := alone.client.GetReadiness(t.Context(), &v1.GetReadinessRequest{Selector: "pool=blue"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without the API: %v", err)
	}
	l := inCluster(t, webCluster())
	for selector, want := range map[string]codes.Code{"pool in (": codes.InvalidArgument, strings.Repeat("x", 2000): codes.InvalidArgument, "pool=blue": codes.OK, "": codes.OK} {
		if _, err := l.client.GetReadiness(t.Context(), &v1.GetReadinessRequest{Selector: selector}); status.Code(err) != want {
			t.Errorf("%.20q: %v, want %v", selector, err, want)
		}
		if _, err := l.client.ListNodes(t.Context(), &v1.ListNodesRequest{Selector: selector}); status.Code(err) != want {
			t.Errorf("nodes of %.20q: %v, want %v", selector, err, want)
		}
	}
}

func TestAPartOfTheFleet(t *testing.T) {
	l := inCluster(t, webCluster())
	l.report("a", setsSection(0))
	all, err := l.client.GetReadiness(t.Context(), &v1.GetReadinessRequest{ForVersion: "1.40"})
	if err != nil || all.GetNodes() != 2 || all.GetNeverSeen() != 1 || all.GetUpgrade().GetVersion() != "1.40" {
		t.Errorf("all: %v, %v", all, err)
	}
	green, err := l.client.ListNodes(t.Context(), &v1.ListNodesRequest{Selector: "pool=green"})
	if err != nil || len(green.GetNodes()) != 1 || !green.GetNodes()[0].GetNeverSeen() || green.GetAt() == nil {
		t.Errorf("green: %v, %v", green, err)
	}
	for name, request := range map[string]*v1.ListNodesRequest{"finding": {FindingId: "no-such"}, "page": {PageSize: 1001}} {
		if _, err := l.client.ListNodes(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.client.GetReadiness(t.Context(), &v1.GetReadinessRequest{ForVersion: "next"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no version: %v", err)
	}
}

func TestGetCluster(t *testing.T) {
	l := inCluster(t, webCluster())
	got, err := l.client.GetCluster(t.Context(), &v1.GetClusterRequest{})
	if err != nil || got.GetNodes() != 2 || got.GetServices() != 2 || len(got.GetCluster().GetServices()) != 0 || got.GetCluster().GetServerVersion() != "v1.37.2" {
		t.Errorf("%v, %v", got, err)
	}
	alone := startLab(t, short(), nil)
	if _, err := alone.client.GetCluster(t.Context(), &v1.GetClusterRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without the API: %v", err)
	}
}

func TestAcceptances(t *testing.T) {
	k := webCluster()
	l := inCluster(t, k)
	tomorrow := timestamppb.New(time.Now().Add(24 * time.Hour))
	good := func() *v1.AcceptFindingRequest {
		return &v1.AcceptFindingRequest{FindingId: "kernel-too-old", Selector: "pool=blue", Reason: "rebuilt next week", Until: tomorrow}
	}
	for name, spoil := range map[string]func(*v1.AcceptFindingRequest){
		"no such finding": func(r *v1.AcceptFindingRequest) { r.FindingId = "x" },
		"no reason":       func(r *v1.AcceptFindingRequest) { r.Reason = "" },
		"a novel":         func(r *v1.AcceptFindingRequest) { r.Reason = strings.Repeat("x", 501) },
		"no end":          func(r *v1.AcceptFindingRequest) { r.Until = nil },
		"an end before":   func(r *v1.AcceptFindingRequest) { r.Until = timestamppb.New(time.Now().Add(-time.Hour)) },
		"for ever":        func(r *v1.AcceptFindingRequest) { r.Until = timestamppb.New(time.Now().AddDate(5, 0, 0)) },
		"no selector":     func(r *v1.AcceptFindingRequest) { r.Selector = "((" },
	} {
		request := good()
		spoil(request)
		if _, err := l.client.AcceptFinding(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := l.client.AcceptFinding(t.Context(), good())
	if err != nil || got.GetAcceptance().GetAuthor() != "unauthenticated" || got.GetAcceptance().GetAt() == nil || len(k.kept) != 1 {
		t.Errorf("%v, %v, kept %v", got, err, k.kept)
	}
	if list, err := l.client.ListAcceptances(t.Context(), &v1.ListAcceptancesRequest{}); err != nil || len(list.GetAcceptances()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := l.client.WithdrawAcceptance(t.Context(), &v1.WithdrawAcceptanceRequest{Id: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("another id: %v", err)
	}
	if _, err := l.client.WithdrawAcceptance(t.Context(), &v1.WithdrawAcceptanceRequest{Id: "id-1"}); err != nil {
		t.Error(err)
	}
	k.fails = errors.New("the API server is away")
	if _, err := l.client.AcceptFinding(t.Context(), good()); status.Code(err) != codes.Unavailable {
		t.Errorf("without an API server: %v", err)
	}
	alone := startLab(t, short(), nil)
	if _, err := alone.client.AcceptFinding(t.Context(), good()); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("outside Kubernetes: %v", err)
	}
}

// service asks for a Service and takes the whole answer.
func (l *lab) service(name string) (service *v1.ClusterService, nodes map[string]*v1.NodeService, summary *v1.ServiceSummary, err error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patient)
	defer cancel()
	stream, err := l.client.GetService(ctx, &v1.GetServiceRequest{Namespace: "default", Name: name})
	if err != nil {
		return nil, nil, nil, err
	}
	nodes = map[string]*v1.NodeService{}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return service, nodes, summary, nil
		}
		if err != nil {
			return service, nodes, summary, err
		}
		if event.GetService() != nil {
			service = event.GetService()
		}
		if node := event.GetNode(); node != nil {
			nodes[node.GetNode()] = node
		}
		if event.GetSummary() != nil {
			summary = event.GetSummary()
		}
	}
}

// One node answers, one breaks off in the middle, one has no stream: each is told apart, and the rest of the answer stands.
func TestOneServiceAsEveryNodeSeesIt(t *testing.T) {
	l := inCluster(t, webCluster())
	good, broken, gone := l.report("a", setsSection(0)), l.report("b", setsSection(0)), l.report("c", setsSection(0))
	_ = gone.stream.CloseSend()
	l.waitFor("the end of c", func() bool { return !l.store.Summary(1, "c").GetConnected() })
	go serveService(t, good, "ipvs TCP 10.96.0.10:80 lc, owner kube-proxy/ipvs (x), 3 established connections now, 9 connections and 10 packets so far",
		"  -> 10.244.1.7:8080 Masq weight 1, 3 active and 4 inactive connections", "ip6 kube-proxy: map service-ips: TCP [fd00::a]:80 : goto x",
		"-A KUBE-SEP-X -p tcp -j DNAT --to-destination 10.244.1.7:8080")
	go func() {
		message, err := broken.stream.Recv()
		if err == nil {
			broken.send(&v1.ConnectRequest{Message: &v1.ConnectRequest_DetailPart{DetailPart: &v1.DetailPart{
				Id: message.GetDetailRequest().GetId(), Items: []string{"x"}, Last: true, Error: "the table kept changing"}}})
		}
	}()
	service, nodes, summary, err := l.service("web")
	if err != nil || service.GetName() != "web" || len(nodes) != 3 || summary.GetAsked() != 3 || summary.GetAnswered() != 1 || len(summary.GetSilentSamples()) != 2 {
		t.Fatalf("%v, %v, %v, %v", service, nodes, summary, err)
	}
	var got []string
	for _, entry := range nodes["a"].GetEntries()[:4] {
		got = append(got, fmt.Sprint(entry.GetKind(), "|", entry.GetMode(), "|", entry.GetActiveConnections(), "|", entry.GetInactiveConnections(), "|", entry.GetNames()))
	}
	want := []string{
		"virtual server|PROXY_MODE_IPVS|0|0|[]", "real server|PROXY_MODE_IPVS|3|4|[10.244.1.7 is pod default/web-1 on a]",
		"nftables entry|PROXY_MODE_NFTABLES|0|0|[]", "iptables rule|PROXY_MODE_IPTABLES|0|0|[10.244.1.7 is pod default/web-1 on a]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(nodes["b"].GetError(), "kept changing") || nodes["c"].GetError() != "the node is not connected" {
		t.Errorf("b %v, c %v", nodes["b"], nodes["c"])
	}
	if _, _, _, err := l.service("none"); status.Code(err) != codes.NotFound {
		t.Errorf("no such Service: %v", err)
	}
	if _, nodes, summary, err := l.service("bare"); err != nil || summary.GetAsked() != 3 || len(nodes["a"].GetEntries()) != 0 {
		t.Errorf("a Service without ports: %v %v %v", nodes, summary, err)
	}
}

// serveService answers every port's question with the same lines.
func serveService(t *testing.T, c *caller, items ...string) {
	for {
		message, err := c.stream.Recv()
		if err != nil {
			return
		}
		query := message.GetDetailRequest().GetService()
		if strings.Join(query.GetAddresses(), " ") != "10.96.0.10 203.0.113.9" {
			t.Errorf("asked for %v", query)
		}
		c.answer(message.GetDetailRequest().GetId(), true, items...)
	}
}

func TestChangesOfTheFleet(t *testing.T) {
	l := startLab(t, short(), nil)
	history := func(since int64, entries ...*v1.HistoryEntry) *v1.SectionReport {
		return encode(v1.SectionKind_SECTION_KIND_HISTORY, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_PRESENT, Content: &v1.SectionStable_History{
			History: &v1.HistoryFacts{Since: &timestamppb.Timestamp{Seconds: since}, Entries: entries}}})
	}
	entry := func(second int64, kind string) *v1.HistoryEntry {
		return &v1.HistoryEntry{At: &timestamppb.Timestamp{Seconds: second}, Kind: kind, What: "x"}
	}
	l.report("a", history(10, entry(20, "mode"), entry(60, "clean-up")))
	l.report("b", history(50, entry(55, "boot")))
	l.report("c", setsSection(0))
	l.waitFor("three reports", func() bool { return l.store.Readiness(1, fleet.Filter{}, "").GetNodes() == 3 })
	got, err := l.client.ListChanges(t.Context(), &v1.ListChangesRequest{Since: &timestamppb.Timestamp{Seconds: 30}})
	if err != nil || len(got.GetChanges()) != 2 || got.GetChanges()[0].GetKind() != "clean-up" || got.GetChanges()[1].GetNode() != "b" ||
		strings.Join(got.GetIncompleteSamples(), " ") != "b c" {
		t.Errorf("%v, %v", got, err)
	}
	if one, err := l.client.ListChanges(t.Context(), &v1.ListChangesRequest{Node: "a", Limit: 1}); err != nil || len(one.GetChanges()) != 1 || one.GetChanges()[0].GetKind() != "clean-up" {
		t.Errorf("%v, %v", one, err)
	}
	for name, request := range map[string]*v1.ListChangesRequest{"no node": {Node: "A B"}, "too many": {Limit: 1001}} {
		if _, err := l.client.ListChanges(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.client.ListChanges(t.Context(), &v1.ListChangesRequest{Node: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("a node that is not known: %v", err)
	}
}

// Nodes that the API tells of and that this replica has not heard of cannot be asked: an answer without them says so.
func TestNodesThatCannotBeAsked(t *testing.T) {
	k := webCluster()
	l := inCluster(t, k)
	l.report("a")
	l.missing("the Kubernetes API does not tell which nodes there are")
	k = webCluster()
	k.facts.Sources = []*v1.ClusterSource{{Kind: "nodes", State: v1.SectionState_SECTION_STATE_PRESENT}}
	l = inCluster(t, k)
	l.report("a")
	l.missing("1 of 2 nodes never reported to this aggregator: quiet")
	if one, err := l.client.ListChanges(t.Context(), &v1.ListChangesRequest{Node: "a"}); err != nil || one.GetNodesMissing() != "" {
		t.Errorf("of one node: %v, %v", one, err)
	}
	l.report("quiet")
	l.missing("")
}

// missing checks why nodes are missing from what is told of changes and of a Service.
func (l *lab) missing(want string) {
	l.t.Helper()
	l.waitFor(want, func() bool {
		changes, err := l.client.ListChanges(l.t.Context(), &v1.ListChangesRequest{})
		return err == nil && changes.GetNodesMissing() == want
	})
	if _, _, summary, err := l.service("bare"); err != nil || summary.GetIncomplete() != want {
		l.t.Errorf("the Service: %v, %v, want %q", summary, err, want)
	}
}
