package identity

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// liar is the version of an agent that is none.
const liar = "liar"

// reports says Hello and a first report for a node and returns how that ended; nil for a Welcome.
func (s *stage) reports(token, node string) error {
	s.Helper()
	stream, err := offrampv1.NewAgentServiceClient(s.dial()).Connect(s.as(token))
	if err != nil {
		return err
	}
	hello := &offrampv1.Hello{Node: node, AgentVersion: liar, Instance: "x"}
	_ = stream.Send(&offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Hello{Hello: hello}})
	_, err = stream.Recv()
	return err
}

// plans orders a plan of a clean-up for a node and returns how that ended.
func (s *stage) plans(token, node string) error {
	s.Helper()
	stream, err := offrampv1.NewCleanupServiceClient(s.dial()).Plan(s.as(token), &offrampv1.PlanRequest{
		Node: node, OrderId: "0123456789abcdef-" + strings.ToLower(s.Name()[:4]), Target: offrampv1.Target_TARGET_NFTABLES})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// attempt is something that somebody may not do, and what he is told.
type attempt struct {
	name string
	do   func() error
	want codes.Code
	says string
	logs []string
}

func (s *stage) attempts() []attempt {
	api := s.cluster.API
	create(s.T, api, account("elsewhere", "offramp-agent"))
	create(s.T, api, account(offramp, "somebody"))
	pod := func(namespace, account, name string) string {
		return addPod(s.T, api, namespace, account, name, "node-a")
	}
	ours := pod(offramp, "offramp-agent", "another-agent")
	good := request(s.T, api, offramp, "offramp-agent", audience, "another-agent", ours)
	foreign := request(s.T, api, "elsewhere", "offramp-agent", audience, "foreign-agent", pod("elsewhere", "offramp-agent", "foreign-agent"))
	other := request(s.T, api, offramp, "somebody", audience, "somebody", pod(offramp, "somebody", "somebody"))
	tampered := good[:len(good)-6] + "AAAAAA"
	agent := func(token, node string) func() error { return func() error { return s.reports(token, node) } }
	return []attempt{
		{"no token", agent("", "node-a"), codes.Unauthenticated, "no token", nil},
		{"a token that is none", agent("a.b.c", "node-a"), codes.Unauthenticated, "no signed token", nil},
		{"a signature that is none", agent(tampered, "node-a"), codes.Unauthenticated, "signature", nil},
		{"node a reports for node b", agent(good, "node-b"), codes.PermissionDenied, "node-b", []string{`"agent_of":"node-a"`, `"node":"node-b"`, `"token_id":"`}},
		{"node a reports for a node that is not", agent(good, "node-z"), codes.PermissionDenied, "node-z", nil},
		{"expired, of an agent", agent(s.expired(good), "node-a"), codes.Unauthenticated, "expired", nil},
		{"expired, of an operator", func() error { return s.plans(s.expired(s.person("offramp-operator")), "node-a") }, codes.Unauthenticated, "expired", nil},
		{"wrong audience", agent(request(s.T, api, offramp, "offramp-agent", "somebody-else", "another-agent", ours), "node-a"), codes.Unauthenticated, "audience", nil},
		{"the API server's audience", agent(request(s.T, api, offramp, "offramp-agent", "", "another-agent", ours), "node-a"), codes.Unauthenticated, "audience", nil},
		{"wrong namespace", agent(foreign, "node-a"), codes.PermissionDenied, "namespace", []string{"system:serviceaccount:elsewhere:offramp-agent"}},
		{"wrong account", agent(other, "node-a"), codes.PermissionDenied, "system:serviceaccount:offramp:somebody", nil},
		{"bound to no pod", agent(request(s.T, api, offramp, "offramp-agent", audience, "", ""), "node-a"), codes.PermissionDenied, "no pod", nil},
		{"an operator reports", agent(s.person("offramp-operator"), "node-a"), codes.PermissionDenied, "agent", nil},
		{"an agent asks for the fleet", func() error {
			_, err := offrampv1.NewFleetServiceClient(s.dial()).ListNodes(s.as(good), &offrampv1.ListNodesRequest{})
			return err
		}, codes.PermissionDenied, "person", nil},
		{"nobody asks for the fleet", func() error {
			_, err := offrampv1.NewFleetServiceClient(s.dial()).ListNodes(s.as(""), &offrampv1.ListNodesRequest{})
			return err
		}, codes.Unauthenticated, "no token", nil},
		{"an account without a role asks", func() error {
			_, err := offrampv1.NewFleetServiceClient(s.dial()).GetNode(s.as(other), &offrampv1.GetNodeRequest{Node: "node-a"})
			return err
		}, codes.PermissionDenied, "get nodes.offramp.dev node-a", nil},
		{"an agent orders a clean-up", func() error { return s.plans(good, "node-a") }, codes.PermissionDenied, "person", nil},
		{"a viewer orders a clean-up", func() error { return s.plans(s.person("offramp-viewer"), "node-a") }, codes.PermissionDenied,
			"plan nodecleanups.offramp.dev node-a", []string{`"caller":"system:serviceaccount:offramp:offramp-viewer"`}},
		{"an operator of node a orders one of node b", func() error { return s.plans(s.operatorOf("node-a"), "node-b") }, codes.PermissionDenied,
			"plan nodecleanups.offramp.dev node-b", nil},
	}
}

// operatorOf is a token of an account that may order clean-ups of one node alone, by plain RBAC.
func (s *stage) operatorOf(node string) string {
	s.Helper()
	name, api := "operator-of-"+node, s.cluster.API
	create(s.T, api, account(offramp, name))
	create(s.T, api, map[string]any{"apiVersion": rbac, "kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": []any{
		map[string]any{"apiGroups": []string{"offramp.dev"}, "resources": []string{"nodecleanups"}, "resourceNames": []string{node}, "verbs": []string{"plan", "apply", "restore"}},
	}})
	create(s.T, api, map[string]any{"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": offramp, "name": name}}})
	return s.person(name)
}

// Each of them is refused with a status that says why, and a line in the log; the real nodes do not notice.
func TestRefused(t *testing.T) {
	s := setUp(t)
	create(t, s.cluster.API, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "elsewhere"}})
	for _, a := range s.attempts() {
		before := len(s.aggregator.out.String())
		err := a.do()
		if status.Code(err) != a.want || !strings.Contains(status.Convert(err).Message(), a.says) {
			t.Errorf("%s: %v, want %v with %q", a.name, err, a.want, a.says)
			continue
		}
		s.aggregator.says(t, before, append([]string{`"msg":"refused"`, `"peer":"`}, a.logs...)...)
		s.stands(a.name)
	}
	if s.summary("node-z") != nil {
		t.Error("a node that is not is in view")
	}
	// And the counterparts get through, so that it is not all refused.
	token := s.operatorOf("node-b")
	eventually(t, 30*time.Second, "an operator of node b may order a plan of node b", func() bool {
		code := status.Code(s.plans(token, "node-b"))
		return code != codes.PermissionDenied && code != codes.Unauthenticated
	})
	if strings.Contains(s.aggregator.out.String(), "eyJ") {
		t.Error("the log has a token in it")
	}
}
