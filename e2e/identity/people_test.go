package identity

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const rbac = "rbac.authorization.k8s.io/v1"

// bind gives a user a role of Offramp's namespace.
func (s *stage) bind(user, role string) {
	s.Helper()
	create(s.T, s.cluster.API, map[string]any{"apiVersion": rbac, "kind": "RoleBinding", "metadata": map[string]any{"name": user + "-" + role, "namespace": offramp},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}}})
}

// A person with a kubeconfig and the address: what roles he has decides what he may be, and the CLI needs no other file.
func TestPeople(t *testing.T) {
	s := setUp(t)
	if out, code := s.kubectl("eve", "status"); code != 1 || !strings.Contains(out, "the Kubernetes API server") || !strings.Contains(out, "forbidden") {
		t.Errorf("somebody without a role: exit code %d: %s", code, out)
	}
	s.bind("ada", "offramp-be-viewer")
	if out, code := s.kubectl("ada", "nodes", "-o", "json"); code != 0 || !strings.Contains(out, "node-a") {
		t.Errorf("a viewer: exit code %d: %s", code, out)
	}
	if out, code := s.kubectl("ada", "status", "--account", "offramp-operator"); code != 1 || !strings.Contains(out, "offramp/offramp-operator") {
		t.Errorf("a viewer who would be an operator: exit code %d: %s", code, out)
	}
	// Somebody who is nobody, but has the right address.
	out, code := s.run(kubectlPath(), "--aggregator", s.address(), "--ca-file", s.caFile,
		"--server-name", "offramp-aggregator.offramp.svc", "status")
	if code != 1 || !strings.Contains(out, "no token came with the call") || !strings.Contains(out, "--kubeconfig") {
		t.Errorf("nobody: exit code %d: %s", code, out)
	}
	// And with a token in a file, no kubeconfig is needed.
	token := s.file("viewer-token", s.person("offramp-viewer"))
	if out, code := s.run(kubectlPath(), "--aggregator", s.address(), "--ca-file", s.caFile, "--server-name", "offramp-aggregator.offramp.svc",
		"--token-file", token, "nodes"); code != 0 || !strings.Contains(out, "node-b") {
		t.Errorf("a token in a file: exit code %d: %s", code, out)
	}
	s.stands("people came and went")
}

// An operator whose role is taken away stops long before his token ends.
func TestRevokedOperator(t *testing.T) {
	s := setUp(t)
	token := s.person("offramp-operator")
	if code := status.Code(s.plans(token, "node-a")); code == codes.PermissionDenied || code == codes.Unauthenticated {
		t.Fatalf("an operator may not order a plan: %v", code)
	}
	before := len(s.aggregator.out.String())
	if err := s.cluster.API.Do(t.Context(), "DELETE", "/apis/"+rbac+"/clusterrolebindings/offramp-operator", nil, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, 30*time.Second, "the operator is refused", func() bool {
		return status.Code(s.plans(token, "node-a")) == codes.PermissionDenied
	})
	t.Logf("refused %s after the binding was deleted", time.Since(began).Round(time.Second))
	s.aggregator.says(t, before, `"msg":"refused"`, `"method":"/offramp.v1.CleanupService/Plan"`, "offramp-operator")
	s.stands("an operator lost his role")
}

// A pod that is deleted: its agent's stream ends within moments, though the token's signature is good for an hour.
func TestDeletedPod(t *testing.T) {
	s := setUp(t)
	s.startAgent("node-c")
	gone := s.agents["node-c"]
	delete(s.agents, "node-c")
	eventually(t, 60*time.Second, "node-c is in view", func() bool { return s.connected("node-c") })
	before := len(s.aggregator.out.String())
	if err := s.cluster.API.Do(t.Context(), "DELETE", "/api/v1/namespaces/offramp/pods/agent-on-node-c?gracePeriodSeconds=0", nil, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, 60*time.Second, "node-c is out", func() bool { return !s.connected("node-c") })
	t.Logf("out %s after the pod was deleted, reviews are %s apart", time.Since(began).Round(time.Second), reviewEvery)
	s.aggregator.says(t, before, `"msg":"refused"`, `"status":"Unauthenticated"`, `"agent_of":"node-c"`)
	gone.says(t, 0, "Unauthenticated")
	// Its agent goes on trying, and stays out.
	time.Sleep(5 * time.Second)
	if s.connected("node-c") {
		t.Error("node-c came back")
	}
	s.stands("the pod of another node was deleted")
}

// A token that expires ends its stream, and the renewed one in the same file brings the agent back by itself.
func TestRotatedToken(t *testing.T) {
	s := setUp(t)
	agent := s.agents["node-a"]
	pod := "agent-on-node-a"
	var got struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := s.cluster.API.Do(t.Context(), "GET", "/api/v1/namespaces/offramp/pods/"+pod, nil, &got); err != nil {
		t.Fatal(err)
	}
	fresh := request(t, s.cluster.API, offramp, "offramp-agent", audience, pod, got.Metadata.UID)
	s.file("token-node-a", fresh)
	s.aggregator.stop()
	s.startAggregator()
	eventually(t, 60*time.Second, "both nodes are back", func() bool { return s.connected("node-a") && s.connected("node-b") })
	select {
	case <-agent.ended:
		t.Error("the agent ended")
	default:
	}
	// The second aggregator took the authority of the first: the agents' CA file is still right.
	s.stands("the aggregator was restarted")
}
