package deploycheck

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever is asked for, in any combination, has its reason, and no reason is left over.
func reasonsGiven(t *testing.T, s *stage) {
	used := map[string]bool{}
	for _, c := range s.results {
		asks, err := s.types.Asks(c.objects)
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range asks {
			if key := ask.Who + ": " + ask.What; !used[key] && s.reasons.Of(ask) == "" {
				t.Errorf("%s with %v: %q has no reason in reasons.yaml", c.overlay, c.components, key)
			}
			used[ask.Who+": "+ask.What] = true
		}
	}
	for key := range s.reasons {
		if !used[key] {
			t.Errorf("%q is asked for no more", key)
		}
	}
}

func privilegesWritten(t *testing.T, s *stage) {
	want, err := Privileges(s.manifests, s.types, s.reasons)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/privileges.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/privileges.md is old (-file +made); run go -C e2e/deploycheck run ./write:\n%s", diff)
	}
}

// What makes a pod stronger is asked for in words of its own, so that it cannot come in unseen.
func asksSeen(t *testing.T, s *stage) {
	const pod = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a}
spec:
  selector: {matchLabels: {a: b}}
  template:
    spec:
      serviceAccountName: x
      hostPID: true
      hostIPC: true
      volumes: [{name: v, hostPath: {path: /run}}]
      containers:
        - name: c
          securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN]}}
          volumeMounts: [{name: v, mountPath: /run}]
`
	objects, err := Decode([]byte(pod))
	if err != nil {
		t.Fatal(err)
	}
	asks, err := s.types.Asks(objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a privileged container", "more rights by a program", "a writable root", "the node's process ids", "the node's IPC",
		"a token for the API server", "the capability SYS_ADMIN", "/run of the node, writable", "no seccomp profile", "a capability kept by many",
	} {
		if !slices.Contains(asks, Ask{"x", want}) {
			t.Errorf("%q is not seen in %v", want, asks)
		}
	}
}
