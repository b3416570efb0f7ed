package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func someChanges(incomplete uint64) *offrampv1.ListChangesResponse {
	answer := &offrampv1.ListChangesResponse{Incomplete: incomplete, Changes: []*offrampv1.Change{{At: timestamppb.New(noon), Node: "worker-1", Kind: "mode", What: "ipvs -> nftables\x1b"}}}
	if incomplete > 0 {
		answer.IncompleteSamples = []string{"worker-2"}
	}
	return answer
}

func TestChanges(t *testing.T) {
	fleet := &fakeFleet{changes: someChanges(0)}
	ask(t, fleet, "changes", "--since", "2026-11-01", "--limit", "7").want(t, 0, `2026-11-30 12:00:00Z worker-1 mode: ipvs -> nftables\x1b`, "")
	fleet.wantCalls(t, `changes "" since 2026-11-01T00:00:00Z, 7`)
	ask(t, fleet, "changes", "-o", "csv").want(t, 0, "at,node,kind,what\n", "")
	document := ask(t, fleet, "changes", "-o", "json")
	if err := protojson.Unmarshal([]byte(document.stdout), &offrampv1.ListChangesResponse{}); err != nil {
		t.Error(err)
	}
	ask(t, &fakeFleet{changes: someChanges(1)}, "changes").want(t, 4, "Not complete: 1 node: worker-2", "")
	missing := someChanges(0)
	missing.NodesMissing = "it has just\x1b started"
	ask(t, &fakeFleet{changes: missing}, "changes").want(t, 4, `Nodes may be missing: it has just\x1b started`, "")
	ask(t, &fakeFleet{changes: missing}, "changes", "-o", "csv").want(t, 4, "at,node", "")
	ask(t, fleet, "changes", "--limit", "1").want(t, 0, "There may be more: --limit 1 was reached.", "")
	ask(t, fleet, "changes", "--limit", "1001").want(t, 1, "", "--limit is 1 to 1000")
	ask(t, fleet, "changes", "--since", "tomorrow").want(t, 1, "", "--since: ")
}

func TestHistory(t *testing.T) {
	fleet := &fakeFleet{changes: someChanges(1)}
	got := ask(t, fleet, "history", "worker-1")
	got.want(t, 0, "worker-1 mode: ipvs -> nftables", "")
	if strings.Contains(got.stdout, "Not complete") {
		t.Errorf("all that a node remembers is not complete: %s", got.stdout)
	}
	ask(t, fleet, "history", "worker-1", "--since", "2026-11-01").want(t, 0, "Not complete", "")
	fleet.wantCalls(t, `changes "worker-1" since ever, 200`, `changes "worker-1" since 2026-11-01T00:00:00Z, 200`)
	ask(t, fleet, "history").want(t, 1, "", "wants one node name")
}

func TestAccept(t *testing.T) {
	fleet := &fakeFleet{accepted: []*offrampv1.Acceptance{{Id: "a1b2", FindingId: "on-ipvs", Reason: "known", Author: "ada", Until: timestamppb.New(noon)}}}
	ask(t, fleet, "accept", "on-ipvs", "-l", "pool=web", "--reason", "OPS-17", "--until", "2127-01-31").want(t, 0, "a1b2: on-ipvs on nodes with pool=web", "")
	ask(t, fleet, "accept", "--list").want(t, 0, "over: it counts again", "")
	ask(t, fleet, "accept", "--list", "-o", "jsonpath={.acceptances[*].author}").want(t, 0, "ada\n", "")
	ask(t, fleet, "accept", "--withdraw", "a1b2").want(t, 0, "Acceptance a1b2 is taken back", "")
	fleet.wantCalls(t, `accept on-ipvs on "pool=web" until 2127-01-31T00:00:00Z: OPS-17`, "acceptances", "acceptances", "withdraw a1b2")
	for want, args := range map[string][]string{
		"did you mean on-ipvs":     {"on-ipv", "--reason", "x", "--until", "1d"},
		"why, and until when":      {"on-ipvs", "--until", "1d"},
		"--until: \"soon\" is no":  {"on-ipvs", "--reason", "x", "--until", "soon"},
		"not in the future":        {"on-ipvs", "--reason", "x", "--until", "2020-01-01"},
		"wants one of the id of":   {},
		"--list and --withdraw":    {"on-ipvs", "--list"},
		"id of a finding, --list ": {"--list", "--withdraw", "x"},
	} {
		ask(t, fleet, append([]string{"accept"}, args...)...).want(t, 1, "", want)
	}
	fleet.wantCalls(t)
}

func TestWatchTellsDifferences(t *testing.T) {
	got := ask(t, &fakeFleet{events: someEvents()}, "watch")
	got.want(t, 1, "", "ended the watch; it may be restarting")
	clock := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\dZ`)
	want := "Watching 2 nodes; what changes comes below.\nT  worker-1  could go there: ready -> blocked\nT  worker-2  forgotten by the aggregator\n"
	if text := clock.ReplaceAllString(got.stdout, "T"); text != want {
		t.Errorf("got %s", text)
	}
	lines := ask(t, &fakeFleet{events: someEvents()}, "watch", "-o", "json")
	if n := strings.Count(lines.stdout, "\n"); n != len(someEvents()) {
		t.Errorf("%d lines", n)
	}
	// A node that nobody named, and an event that this version does not know.
	ask(t, &fakeFleet{events: []*offrampv1.WatchResponse{{}, synced(0), changed("", 99), forgotten("x\ny")}}, "watch").want(t, 1, `x\x0ay  forgotten`, "ended")
}

func serviceAnswers(summary *offrampv1.ServiceSummary, nodes ...*offrampv1.NodeService) []*offrampv1.GetServiceResponse {
	service := &offrampv1.ClusterService{Namespace: "default", Name: "web", Type: "ClusterIP", ClusterIps: []string{"10.96.7.7"}}
	events := []*offrampv1.GetServiceResponse{{Event: &offrampv1.GetServiceResponse_Service{Service: service}}}
	for _, node := range nodes {
		events = append(events, &offrampv1.GetServiceResponse{Event: &offrampv1.GetServiceResponse_Node{Node: node}})
	}
	if summary != nil {
		events = append(events, &offrampv1.GetServiceResponse{Event: &offrampv1.GetServiceResponse_Summary{Summary: summary}})
	}
	return events
}

func onIPVS(node string, active uint64) *offrampv1.NodeService {
	return &offrampv1.NodeService{Node: node, RunningMode: offrampv1.ProxyMode_PROXY_MODE_IPVS, Entries: []*offrampv1.ServiceEntry{
		{Kind: "virtual server", Text: "ipvs TCP 10.96.7.7:80 lc"},
		{Kind: "real server", Text: fmt.Sprintf("  -> 10.244.1.7:8080 Masq weight 1, %d active and 0 inactive connections", active), ActiveConnections: active,
			Names: []string{"10.244.1.7 is pod default/web-1"}}}}
}

func TestService(t *testing.T) {
	fleet := &fakeFleet{answers: serviceAnswers(&offrampv1.ServiceSummary{Asked: 2, Answered: 2}, onIPVS("worker-2", 40), onIPVS("worker-1", 2))}
	got := ask(t, fleet, "service", "default/web", "-l", "pool=web")
	got.want(t, 0, "worker-2 (ipvs): 1 virtual server, 1 real server with 40 active and 0 inactive", "")
	got.want(t, 0, "10.244.1.7:8080 (pod default/web-1): 42 (worker-1 2, worker-2 40)", "")
	got.want(t, 0, "2 of 2 nodes answered.", "")
	ask(t, fleet, "service", "web").want(t, 0, "", "")
	ask(t, fleet, "service", "-n", "shop", "web", "-o", "wide").want(t, 0, "    -> 10.244.1.7:8080 Masq weight 1, 40 active", "")
	ask(t, fleet, "service", "-n", "default", "default/web", "-o", "yaml").want(t, 0, "---\n", "")
	fleet.wantCalls(t, "service default/web pool=web", "service default/web", "service shop/web", "service default/web")
	lines := ask(t, fleet, "service", "default/web", "-o", "json")
	for line := range strings.Lines(lines.stdout) {
		if err := protojson.Unmarshal([]byte(line), &offrampv1.GetServiceResponse{}); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	for want, args := range map[string][]string{
		"is no Service":               {"a/b/c"},
		`which namespace: "a" or "b"`: {"-n", "b", "a/c"},
		"wants one Service":           {},
		`"/web" is no`:                {"/web"},
		`"a/" is no`:                  {"a/"},
	} {
		ask(t, fleet, append([]string{"service"}, args...)...).want(t, 1, "", want)
	}
}

// Who did not answer is named, and the exit code says that it is not the whole.
func TestServicePartialAnswers(t *testing.T) {
	silent := &offrampv1.NodeService{Node: "worker-9", Error: "the node is not connected\x1b"}
	fleet := &fakeFleet{answers: serviceAnswers(&offrampv1.ServiceSummary{Asked: 2, Answered: 1, SilentSamples: []string{"worker-9"}}, onIPVS("worker-1", 1), silent)}
	ask(t, fleet, "service", "default/web").want(t, 4, "Not (wholly) answered: 1 node: worker-9", "")
	ask(t, fleet, "service", "default/web", "-o", "json").want(t, 4, `the node is not connected\u001b`, "")
	lying := &fakeFleet{answers: serviceAnswers(&offrampv1.ServiceSummary{Asked: 2, Answered: 2}, onIPVS("worker-1", 1), silent)}
	ask(t, lying, "service", "default/web").want(t, 4, "", "")
	ask(t, &fakeFleet{answers: serviceAnswers(&offrampv1.ServiceSummary{})}, "service", "default/web").want(t, 4, "0 of 0 nodes answered.", "")
	missing := &fakeFleet{answers: serviceAnswers(&offrampv1.ServiceSummary{Asked: 1, Answered: 1, Incomplete: "it has just\x1b started"}, onIPVS("worker-1", 1))}
	ask(t, missing, "service", "default/web").want(t, 4, `Nodes may be missing: it has just\x1b started`, "")
	// It breaks off: ended, refused, or silent until the time is over.
	cut := &fakeFleet{answers: serviceAnswers(nil, onIPVS("worker-1", 1))}
	ask(t, cut, "service", "default/web").want(t, 4, "(worker-1 1)", "ended its answer without a summary")
	cut.hold = true
	ask(t, cut, "service", "default/web", "--timeout", "300ms").want(t, 4, "worker-1 (ipvs)", "only 1 nodes answered: asking the nodes for the Service default/web: no answer")
	nothing := &fakeFleet{hold: true}
	ask(t, nothing, "service", "default/web", "--timeout", "300ms").want(t, 1, "", "within 300ms")
}
