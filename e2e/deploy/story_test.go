package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// way is how people put Offramp into a cluster, and out of it.
type way struct {
	observe, enforce, remove func(*stage)
}

// byKustomize is kubectl alone.
func byKustomize() way {
	const folder = "../../deploy"
	return way{
		observe: func(s *stage) { s.must("apply", "-k", folder) },
		enforce: func(s *stage) { s.must("apply", "-k", folder+"/overlays/enforce") },
		remove:  func(s *stage) { s.must("delete", "-k", folder+"/overlays/enforce", "--wait", "--timeout=120s") },
	}
}

// byHelm is the chart. Helm leaves the namespace.
func byHelm() way {
	install := func(mode string) func(*stage) {
		return func(s *stage) {
			s.helm("upgrade", "--install", "offramp", "../../deploy/chart/offramp", "--namespace", "offramp", "--create-namespace", "--set", "mode="+mode)
		}
	}
	return way{
		observe: install("observe"),
		enforce: install("enforce"),
		remove: func(s *stage) {
			s.helm("uninstall", "offramp", "--namespace", "offramp", "--wait", "--timeout", "120s")
			s.must("delete", "namespace", "offramp", "--wait", "--timeout=120s")
		},
	}
}

// The whole story on one cluster, twice: look, allow a clean-up, clean up, and go, with nothing left.
func TestStory(t *testing.T) {
	s := setUp(t)
	s.feed(dirty, foreign, "sh", "-e")
	for _, part := range []struct {
		name string
		way  way
	}{{"kustomize", byKustomize()}, {"helm", byHelm()}} {
		if !t.Run(part.name, func(t *testing.T) { s.in(t).story(part.way) }) {
			t.FailNow()
		}
	}
	t.Run("as the documents say", func(t *testing.T) { s.in(t).documents() })
}

func (s *stage) story(way way) {
	s.Helper()
	s.makeDirty(dirty)
	before, asked := s.snapshot(), len(s.Cluster.Audit())
	way.observe(s)
	s.isThere()
	s.looks()
	s.refusesToCleanUp()
	way.enforce(s)
	s.isThere()
	s.cleansUp()
	s.usesTheRest()
	s.rightsAreUsed(s.must("kustomize", "../../deploy/overlays/enforce"), asked)
	way.remove(s)
	s.isGone(before)
}

// isThere waits until every part runs and both nodes are heard of.
func (s *stage) isThere() {
	s.Helper()
	began := time.Now()
	s.apply(people)
	s.rolledOut("offramp", "deployment/offramp-aggregator", "daemonset/offramp-agent")
	var out string
	var code int
	heard := s.within(soon, func() bool {
		out, code = s.offramp(looker, "ready", "--min-listening", "0s")
		return code == 0 || code == 3
	})
	if !heard {
		s.Fatalf("it cannot be told whether the fleet is ready: exit status %d: %s\n%s", code, out, s.pods("offramp"))
	}
	s.Logf("Offramp is there (%s)", time.Since(began).Round(time.Second))
}

// looks asks what people ask.
func (s *stage) looks() {
	s.Helper()
	for _, ask := range []struct {
		args  []string
		code  int
		words []string
	}{
		{[]string{"status"}, 0, []string{"Nodes: 2 "}},
		{[]string{"nodes"}, 0, []string{clean, dirty, "nftables"}},
		{[]string{"leftovers"}, 3, []string{dirty}},
		{[]string{"ready", "--min-listening", "0s"}, 3, nil},
		{[]string{"node", dirty}, 0, []string{"nftables"}},
		{[]string{"node", clean}, 0, []string{"nftables"}},
	} {
		out, code := s.offramp(looker, ask.args...)
		if code != ask.code || !slices.ContainsFunc([]string{out}, func(text string) bool { return hasAll(text, ask.words) }) {
			s.Errorf("kubectl offramp %v: exit status %d, want %d and the words %q:\n%s", ask.args, code, ask.code, ask.words, out)
		}
	}
	if out, code := s.run(s.Kubectl, "-n", "offramp", "logs", "daemonset/offramp-agent"); code != 0 || !strings.Contains(out, `"msg"`) {
		s.Errorf("kubectl logs: exit status %d: %s", code, out)
	}
}

func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// refusesToCleanUp holds that nobody can order anything of what the overlay observe installs.
func (s *stage) refusesToCleanUp() {
	s.Helper()
	before := s.native()
	out, code := s.offramp(doer, "cleanup", dirty, "--yes")
	if code != 2 {
		s.Errorf("a clean-up with the overlay observe: exit status %d, want 2: %s", code, out)
	}
	after := s.native()
	if gone, come := difference(before, after), difference(after, before); len(gone)+len(come) > 0 {
		s.Errorf("a clean-up with the overlay observe removed %q and added %q", gone, come)
	}
}

// cleansUp orders a clean-up of the dirty node: nothing of the old modes is left, and all else is as it was.
func (s *stage) cleansUp() {
	s.Helper()
	before := s.native()
	if found := slices.DeleteFunc(slices.Clone(before), func(line string) bool { return !ofOldModes.MatchString(line) }); len(found) < 200 {
		s.Fatalf("the dirty node has only %d lines of old modes", len(found))
	}
	out, code := s.offramp(doer, "cleanup", dirty, "--yes")
	if code != 0 {
		s.Fatalf("the clean-up: exit status %d: %s\n%s", code, out, s.pods("offramp"))
	}
	after := s.native()
	for _, line := range after {
		if ofOldModes.MatchString(line) && !strings.HasPrefix(line, "native") {
			s.Errorf("left: %s", line)
		}
	}
	for _, line := range difference(before, after) {
		if !ofOldModes.MatchString(line) {
			s.Errorf("removed: %s", line)
		}
	}
	for _, line := range difference(after, before) {
		s.Errorf("added: %s", line)
	}
	if out, code := s.offramp(doer, "cleanup", dirty, "--yes"); code != 0 {
		s.Errorf("a second clean-up: exit status %d: %s", code, out)
	}
	s.eventually(soon, "the fleet has no leftovers", func() bool {
		_, code := s.offramp(looker, "ready", "--min-listening", "0s")
		return code == 0
	})
}

var acceptedID = regexp.MustCompile(`"id": *"([^"]+)"`)

// usesTheRest does what else people may do, so that each right is tried.
func (s *stage) usesTheRest() {
	s.Helper()
	s.mustOfframp(doer, "status")
	s.mustOfframp(looker, "service", "default/kubernetes")
	s.mustOfframp(looker, "detail", "service", clean, "tcp", "10.96.0.1:443")
	s.mustOfframp(doer, "accept", "both-iptables-backends", "--reason", "a test", "--until", "1d")
	accepted := acceptedID.FindStringSubmatch(s.mustOfframp(looker, "accept", "--list", "-o", "json"))
	if accepted == nil {
		s.Error("nothing is accepted")
	} else {
		s.mustOfframp(doer, "accept", "--withdraw", accepted[1])
	}
	s.mustOfframp(doer, "restore", dirty)
	s.mustOfframp(doer, "cleanup", dirty, "--yes")
	// Whoever may order may look with the same account.
	s.mustOfframp(doer, "nodes", "--account", "offramp-operator")
	s.mustOfframp(doer, "node", clean, "--account", "offramp-operator")
	for who, account := range map[string]string{looker: "offramp-viewer", doer: "offramp-operator"} {
		// It has no end of its own.
		if out, code := s.run("timeout", "5", s.Kubectl, "offramp", "watch", "--as", who, "--account", account); code != 124 {
			s.Errorf("kubectl offramp watch: exit status %d: %s", code, out)
		}
	}
}

// mustOfframp asks again for a while: either replica may answer, and one may wait for an agent that has just been replaced.
func (s *stage) mustOfframp(who string, args ...string) (out string) {
	s.Helper()
	var code int
	if !s.within(soon, func() bool {
		out, code = s.offramp(who, args...)
		return code == 0
	}) {
		s.Errorf("%s: kubectl offramp %v: exit status %d: %s", who, args, code, out)
	}
	return out
}

// snapshot is all that an uninstall has to bring back.
type snapshot struct {
	objects      []string
	files, space map[string][]string
}

func (s *stage) snapshot() snapshot {
	s.Helper()
	seen := snapshot{objects: s.objects(), files: map[string][]string{}, space: map[string][]string{}}
	for name := range s.Nodes {
		seen.files[name], seen.space[name] = s.files(name), s.space(name)
	}
	return seen
}

// isGone holds that nothing is left in the cluster, and on nodes only the one folder that holds backups and journals.
func (s *stage) isGone(before snapshot) {
	s.Helper()
	s.eventually(soon, "the cluster's objects are those of before", func() bool {
		return len(difference(s.objects(), before.objects)) == 0
	})
	if lost := difference(before.objects, s.objects()); len(lost) > 0 {
		s.Errorf("gone with Offramp: %q", lost)
	}
	for name := range s.Nodes {
		s.eventually(soon, "the processes, mounts and links of "+name+" are those of before", func() bool {
			return len(difference(s.space(name), before.space[name])) == 0
		})
		for _, file := range difference(s.files(name), before.files[name]) {
			if !strings.HasPrefix(file, "/var/lib/offramp") {
				s.Errorf("left on %s: %s", name, file)
			}
		}
	}
}
