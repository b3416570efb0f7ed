package identity

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/e2e/cluster"
)

// manifest is what a cluster's administrator applies.
const manifest = "../../deploy/base/rbac.yaml"

// plural is how the API server calls the kinds of the manifest.
func plural() map[string]string {
	return map[string]string{
		"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Secret": "secrets", "ConfigMap": "configmaps",
		"Lease": "leases", "CustomResourceDefinition": "customresourcedefinitions", "Role": "roles", "RoleBinding": "rolebindings", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	}
}

// applyManifest creates every object of the manifest.
func applyManifest(t *testing.T, api *cluster.API) {
	t.Helper()
	createFile(t, api, manifest)
}

// createFile creates every object of a file.
func createFile(t *testing.T, api *cluster.API, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(content), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		create(t, api, object)
	}
}

// create makes an object of a kind that the manifest has.
func create(t *testing.T, api *cluster.API, object map[string]any) {
	t.Helper()
	kind, _ := object["kind"].(string)
	path := "/apis/" + fmt.Sprint(object["apiVersion"])
	if object["apiVersion"] == "v1" {
		path = "/api/v1"
	}
	metadata, _ := object["metadata"].(map[string]any)
	if namespace, ok := metadata["namespace"].(string); ok {
		path += "/namespaces/" + namespace
	}
	if plural()[kind] == "" {
		t.Fatalf("the test does not know how to create a %s", kind)
	}
	if err := api.Do(t.Context(), "POST", path+"/"+plural()[kind], object, nil); err != nil {
		t.Fatal(err)
	}
}

func account(namespace, name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name, "namespace": namespace}}
}

// addPod makes a pod of an account on a node, which is made too. It returns the pod's UID.
func addPod(t *testing.T, api *cluster.API, namespace, account, name, node string) string {
	t.Helper()
	// The node may be there already.
	_ = api.Do(t.Context(), "POST", "/api/v1/nodes", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node}}, nil)
	var made struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	pod := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"nodeName": node, "serviceAccountName": account,
			"containers": []any{map[string]any{"name": "agent", "image": "offramp-agent"}},
		},
	}
	if err := api.Do(t.Context(), "POST", "/api/v1/namespaces/"+namespace+"/pods", pod, &made); err != nil {
		t.Fatal(err)
	}
	return made.Metadata.UID
}

// request asks for a token; pod and uid are of the pod that it is bound to, if any. An empty audience is the API server.
func request(t *testing.T, api *cluster.API, namespace, account, audience, pod, uid string) string {
	t.Helper()
	spec := map[string]any{"expirationSeconds": 3600}
	if audience != "" {
		spec["audiences"] = []string{audience}
	}
	if pod != "" {
		spec["boundObjectRef"] = map[string]string{"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", namespace, account)
	if err := api.Do(t.Context(), "POST", path, body, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}
