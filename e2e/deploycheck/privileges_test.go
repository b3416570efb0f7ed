package deploycheck

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func reasons(t *testing.T) Reasons {
	t.Helper()
	reasons, err := ReadReasons()
	if err != nil {
		t.Fatal(err)
	}
	return reasons
}

// Whatever is asked for, in any combination, has its reason, and no reason is left over.
func TestEverythingAskedForHasItsReason(t *testing.T) {
	m, known, why := manifests(t), types(t), reasons(t)
	used := map[string]bool{}
	for _, c := range combinations(t, m) {
		asks, err := known.Asks(built(t, m, c.overlay, c.components...))
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range asks {
			if key := ask.Who + ": " + ask.What; !used[key] && why.Of(ask) == "" {
				t.Errorf("%s with %v: %q has no reason in reasons.yaml", c.overlay, c.components, key)
			}
			used[ask.Who+": "+ask.What] = true
		}
	}
	for key := range why {
		if !used[key] {
			t.Errorf("%q is asked for no more", key)
		}
	}
}

func TestPrivilegesAreWritten(t *testing.T) {
	want, err := Privileges(manifests(t), types(t), reasons(t))
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
func TestAsksAreSeen(t *testing.T) {
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
	asks, err := types(t).Asks(objects)
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
