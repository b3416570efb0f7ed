package deploy

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// live makes tests run that are too long for every time.
const live = "OFFRAMP_E2E_LIVE"

// removal is one thing that the overlay enforce gives the agent, and how its absence shows on a real node.
type removal struct {
	name string
	// take takes it out of the pod's specification; false where it is not there.
	take func(spec map[string]any) bool
	// shows reports whether something is broken, and what was said.
	shows func(*stage) (bool, string)
}

// removals has the clean-ups first that leave the most.
func removals() []removal {
	return []removal{
		{"the capability NET_RAW", capability("NET_RAW"), cleanupFails("iptables-legacy-restore")},
		{"the mount of /run/xtables.lock", volume("xtables-lock"), cleanupFails("xtables.lock")},
		{"the mount of the state folder", volume("state"), cleanupFails("")},
		{"the capability NET_ADMIN", capability("NET_ADMIN"), nodeSays("not permitted")},
		{"the mount of /proc", volume("host-proc"), nodeSays("not in sight")},
		{"the mount of /etc", volume("host-etc"), nodeSays("/etc: not in sight")},
		{"the mount of /usr", volume("host-usr"), nodeSays("/usr/lib/systemd/system: not in sight")},
		{"the mount of /lib", volume("host-lib"), nodeSays("/lib: not in sight")},
		{"the token", volume("token"), noStream},
		{"the authority", volume("authority"), noStream},
		{"hostNetwork", field("hostNetwork"), nodeSays(`"ipsets":"0"`)},
		// Not dnsPolicy: an agent that once found the aggregators remembers where they were.
		{"the tolerations", field("tolerations"), noStream},
	}
}

// Each thing that the agent is given is needed: without it something that people see does not work.
func TestEachPrivilegeIsNeeded(t *testing.T) {
	if os.Getenv(live) == "" {
		t.Skipf("set %s: this takes some minutes", live)
	}
	s := setUp(t)
	s.makeDirty(dirty)
	byKustomize().enforce(s)
	s.isThere()
	// As a node that is reserved for something.
	s.must("taint", "node", dirty, "reserved=yes:NoExecute")
	whole := s.must("-n", "offramp", "get", "daemonset", "offramp-agent", "-o", "json")
	for _, r := range removals() {
		t.Run(r.name, func(t *testing.T) { s.in(t).without(whole, r) })
	}
	s.replaceAgent(whole, func(map[string]any) bool { return true })
	s.isThere()
	s.cleansUp()
}

func (s *stage) without(whole string, r removal) {
	s.Helper()
	s.replaceAgent(whole, func(map[string]any) bool { return true })
	s.rolledOut("offramp", "daemonset/offramp-agent")
	var said string
	if !s.within(soon, func() (works bool) {
		var broken bool
		broken, said = r.shows(s)
		return !broken
	}) {
		s.Fatalf("it shows with everything given, too: %s", said)
	}
	s.replaceAgent(whole, r.take)
	shown := s.within(soon, func() (broken bool) {
		broken, said = r.shows(s)
		return broken
	})
	if !shown {
		s.Errorf("without %s all works: %s", r.name, said)
	}
}

// replaceAgent puts the DaemonSet as it was given there, with a change, and its pods anew on both nodes.
func (s *stage) replaceAgent(whole string, change func(spec map[string]any) bool) {
	s.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(whole), &object); err != nil {
		s.Fatal(err)
	}
	delete(object, "status")
	meta := object["metadata"].(map[string]any)
	delete(meta, "resourceVersion")
	spec := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	if !change(spec) {
		s.Fatal("it is not in the manifest")
	}
	text, err := json.Marshal(object)
	if err != nil {
		s.Fatal(err)
	}
	if out, code := s.runInput(string(text), s.Kubectl, "replace", "-f", "-"); code != 0 {
		s.Fatalf("kubectl replace: %s", out)
	}
	s.must("-n", "offramp", "delete", "pods", "-l", "app.kubernetes.io/name=offramp-agent", "--wait", "--timeout=60s")
}

func container(spec map[string]any) map[string]any {
	return spec["containers"].([]any)[0].(map[string]any)
}

func capability(name string) func(map[string]any) bool {
	return func(spec map[string]any) bool {
		capabilities := container(spec)["securityContext"].(map[string]any)["capabilities"].(map[string]any)
		before := capabilities["add"].([]any)
		after := slices.DeleteFunc(slices.Clone(before), func(each any) bool { return each == name })
		capabilities["add"] = after
		return len(after) < len(before)
	}
}

// volume takes a volume away and what is mounted of it.
func volume(name string) func(map[string]any) bool {
	return func(spec map[string]any) bool {
		named := func(each any) bool { return each.(map[string]any)["name"] == name }
		before := spec["volumes"].([]any)
		spec["volumes"] = slices.DeleteFunc(slices.Clone(before), named)
		mounts := container(spec)["volumeMounts"].([]any)
		container(spec)["volumeMounts"] = slices.DeleteFunc(slices.Clone(mounts), named)
		return len(spec["volumes"].([]any)) < len(before)
	}
}

func field(name string) func(map[string]any) bool {
	return func(spec map[string]any) bool {
		_, there := spec[name]
		delete(spec, name)
		return there
	}
}

// cleanupFails orders a clean-up that does not do it all, and for a reason that is said.
func cleanupFails(words string) func(*stage) (bool, string) {
	return func(s *stage) (bool, string) {
		if s.privileged() {
			return false, ""
		}
		out, code := s.offramp(doer, "cleanup", dirty, "--yes")
		return code != 0 && strings.Contains(out, words), out
	}
}

// privileged reports whether the agent has all: a clean-up would then do what the next case is to fail at.
func (s *stage) privileged() bool {
	out := s.must("-n", "offramp", "get", "daemonset", "offramp-agent", "-o", "json")
	return strings.Contains(out, `"NET_RAW"`) && strings.Contains(out, `"xtables-lock"`) && strings.Contains(out, `"mountPath": "/var/lib/offramp"`)
}

func nodeSays(words string) func(*stage) (bool, string) {
	return func(s *stage) (bool, string) {
		out, code := s.offramp(looker, "node", dirty, "-o", "json")
		flat := strings.NewReplacer(": ", ":").Replace(out)
		return code == 0 && (strings.Contains(out, words) || strings.Contains(flat, words)), out[:min(len(out), 3000)]
	}
}

// noStream reports that no agent of the node takes an order.
func noStream(s *stage) (bool, string) {
	out, code := s.offramp(doer, "cleanup", dirty, "--dry-run", "--timeout", "3s")
	return code == 1 && strings.Contains(out, "no stream"), out
}
