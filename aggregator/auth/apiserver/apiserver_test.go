package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"

	"offramp.dev/offramp/aggregator/auth"
	"offramp.dev/offramp/aggregator/authority"
)

// script answers "METHOD path" with a status and a body; what is not in it is a 404. It notes the bodies it was sent.
type script struct {
	answers map[string]any
	codes   map[string]int
	sent    map[string]string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.Path
	s.sent[key] = sent(r)
	w.Header().Set("Content-Type", "application/json")
	answer, known := s.answers[key]
	code := s.codes[key]
	if !known && code == 0 {
		code = http.StatusNotFound
	}
	if code != 0 {
		reasons := map[int]string{404: "NotFound", 409: "Conflict", 403: "Forbidden"}
		w.WriteHeader(code)
		answer = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reasons[code], "message": "told so"}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// sent is a request's object as JSON; it may come in protobuf.
func sent(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return ""
	}
	text, _ := json.Marshal(object)
	return string(text)
}

func start(t *testing.T) (*API, *script) {
	t.Helper()
	s := &script{answers: map[string]any{}, codes: map[string]int{}, sent: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it}}], clusters: [{name: it, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	api, err := Connect(path)
	if err != nil {
		t.Fatal(err)
	}
	return api, s
}

const (
	reviews = "POST /apis/authentication.k8s.io/v1/tokenreviews"
	access  = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
)

func TestReviewToken(t *testing.T) {
	api, s := start(t)
	tests := map[string]struct {
		status map[string]any
		good   bool
	}{
		"good":             {map[string]any{"authenticated": true, "audiences": []string{"offramp"}, "user": map[string]any{"username": "u", "uid": "1", "groups": []string{"g"}, "extra": map[string]any{"k": []string{"v"}}}}, true},
		"refused":          {map[string]any{"error": "gone"}, false},
		"audience ignored": {map[string]any{"authenticated": true, "user": map[string]any{"username": "u"}}, false},
		"another audience": {map[string]any{"authenticated": true, "audiences": []string{"other"}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s.answers[reviews] = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": tt.status}
			got, err := api.ReviewToken(t.Context(), "a.b.c", "offramp")
			if err != nil || got.Authenticated != tt.good || !tt.good && got.Reason == "" {
				t.Errorf("got %+v, %v", got, err)
			}
			if tt.good && (got.User.Name != "u" || got.User.UID != "1" || got.User.Groups[0] != "g" || got.User.Extra["k"][0] != "v") {
				t.Errorf("the user is %+v", got.User)
			}
			if sent := s.sent[reviews]; !strings.Contains(sent, `"token":"a.b.c"`) || !strings.Contains(sent, `"audiences":["offramp"]`) {
				t.Errorf("sent %s", sent)
			}
		})
	}
	delete(s.answers, reviews)
	if _, err := api.ReviewToken(t.Context(), "a.b.c", "offramp"); err == nil {
		t.Error("no answer is no error")
	}
}

func TestReviewAccess(t *testing.T) {
	api, s := start(t)
	user := auth.User{Name: "u", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	for name, tt := range map[string]struct {
		allowed, denied, want bool
	}{"allowed": {true, false, true}, "not": {false, false, false}, "both": {true, true, false}} {
		s.answers[access] = map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": map[string]any{"allowed": tt.allowed, "denied": tt.denied, "reason": "RBAC"}}
		got, err := api.ReviewAccess(t.Context(), user, auth.Action{Verb: "apply", Resource: "nodecleanups", Node: "n"})
		if err != nil || got.Allowed != tt.want || got.Reason != "RBAC" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, want := range []string{`"group":"offramp.dev"`, `"resource":"nodecleanups"`, `"verb":"apply"`, `"name":"n"`, `"user":"u"`, `"groups":["g"]`, `"uid":"1"`, `"extra":{"k":["v"]}`} {
		if !strings.Contains(s.sent[access], want) {
			t.Errorf("no %s in %s", want, s.sent[access])
		}
	}
	if strings.Contains(s.sent[access], "namespace") {
		t.Error("the question is about a namespace")
	}
	s.codes[access] = http.StatusForbidden
	if got, err := api.ReviewAccess(t.Context(), user, auth.Action{}); err == nil || got.Allowed {
		t.Errorf("refused to tell: %+v, %v", got, err)
	}
}

func TestPublished(t *testing.T) {
	api, s := start(t)
	if _, err := api.Published(t.Context()); err == nil || !strings.Contains(err.Error(), "openid-configuration") {
		t.Errorf("got %v", err)
	}
	s.answers["GET /.well-known/openid-configuration"] = map[string]string{"issuer": "https://it"}
	if _, err := api.Published(t.Context()); err == nil || !strings.Contains(err.Error(), "jwks") {
		t.Errorf("got %v", err)
	}
	s.answers["GET /openid/v1/jwks"] = map[string]any{"keys": []any{}}
	if got, err := api.Published(t.Context()); err != nil || got.Issuer != "https://it" || !strings.Contains(string(got.Keys), "keys") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNodeOfPod(t *testing.T) {
	api, s := start(t)
	const path = "GET /api/v1/namespaces/offramp/pods/p"
	pod := func(uid, node string) any {
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]string{"uid": uid}, "spec": map[string]string{"nodeName": node}}
	}
	if _, err := api.NodeOfPod(t.Context(), "offramp", "p", "1"); err == nil {
		t.Error("a pod that is not has a node")
	}
	for name, tt := range map[string]struct {
		pod  any
		want string
	}{"bound": {pod("1", "n"), "n"}, "another one by now": {pod("2", "n"), ""}, "not bound yet": {pod("1", ""), ""}} {
		s.answers[path] = tt.pod
		if got, err := api.NodeOfPod(t.Context(), "offramp", "p", "1"); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestShared(t *testing.T) {
	api, s := start(t)
	shared := Shared{API: api, Namespace: "offramp", Secret: "s", ConfigMap: "m"}
	const secrets, maps = "/api/v1/namespaces/offramp/secrets", "/api/v1/namespaces/offramp/configmaps"
	if data, version, err := shared.Load(t.Context()); data != nil || version != "" || err != nil {
		t.Errorf("nothing there: %v, %q, %v", data, version, err)
	}
	s.codes["POST "+secrets] = http.StatusConflict
	if err := shared.Save(t.Context(), nil, ""); !errors.Is(err, authority.ErrConflict) {
		t.Errorf("created by another replica: %v", err)
	}
	s.answers["GET "+secrets+"/s"] = map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "resourceVersion": "7", "labels": map[string]string{"theirs": "x"}}, "data": map[string]string{"ca.crt": "aGk="}}
	if data, version, err := shared.Load(t.Context()); string(data["ca.crt"]) != "hi" || version != "7" || err != nil {
		t.Errorf("%v, %q, %v", data, version, err)
	}
	s.answers["PUT "+secrets+"/s"] = map[string]any{"apiVersion": "v1", "kind": "Secret"}
	if err := shared.Save(t.Context(), map[string][]byte{"ca.crt": []byte("new")}, "6"); err != nil {
		t.Error(err)
	}
	if sent := s.sent["PUT "+secrets+"/s"]; !strings.Contains(sent, `"resourceVersion":"6"`) || !strings.Contains(sent, `"theirs":"x"`) {
		t.Errorf("sent %s", sent)
	}
	s.codes["PUT "+secrets+"/s"] = http.StatusConflict
	if err := shared.Save(t.Context(), nil, "6"); !errors.Is(err, authority.ErrConflict) {
		t.Errorf("got %v", err)
	}
	s.codes["GET "+secrets+"/s"] = http.StatusForbidden
	if _, _, err := shared.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "offramp/s") {
		t.Errorf("forbidden: %v", err)
	}
	s.answers["GET "+maps+"/m"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "m"}, "data": map[string]string{"ca.crt": "same", "more": "theirs"}}
	if err := shared.Publish(t.Context(), []byte("same")); err != nil || s.sent["PUT "+maps+"/m"] != "" {
		t.Errorf("published what was published: %v", err)
	}
	s.answers["PUT "+maps+"/m"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}
	if err := shared.Publish(t.Context(), []byte("other")); err != nil || !strings.Contains(s.sent["PUT "+maps+"/m"], `"ca.crt":"other"`) || !strings.Contains(s.sent["PUT "+maps+"/m"], `"more":"theirs"`) {
		t.Errorf("sent %s, %v", s.sent["PUT "+maps+"/m"], err)
	}
}

func TestConnectFails(t *testing.T) {
	if _, err := Connect("/nowhere/config"); err == nil || !strings.Contains(err.Error(), "/nowhere/config") {
		t.Errorf("got %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Connect(""); err == nil {
		t.Error("connected to a cluster that is not")
	}
}
