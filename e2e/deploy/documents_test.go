package deploy

import (
	"os"
	"path/filepath"
	"strings"

	"offramp.dev/offramp/e2e/cluster/kube"
)

const (
	documentedRegistry = "registry.example/offramp"
	documentedTag      = "v0.1.0"
	// notAnAnswer is the exit code of a command of kubectl-offramp that failed. The others say something of the fleet.
	notAnAnswer = 1
)

// documents does what install.md and uninstall.md say, as it is written there, with kustomize and with Helm.
func (s *stage) documents() {
	s.Helper()
	before := s.snapshot()
	dir := s.checkout()
	install, uninstall := s.sections("install.md"), s.sections("uninstall.md")
	byKustomize, byHelm := install["With kustomize"], install["With Helm"]
	away, otherwise, _ := strings.Cut(uninstall[""][0], "# or: ")
	if len(byKustomize) != 2 || len(byHelm) != 1 || otherwise == "" {
		s.Fatalf("the documents have other blocks: %q, %q, %q", byKustomize, byHelm, uninstall[""])
	}
	if err := os.WriteFile(filepath.Join(dir, "offramp", "kustomization.yaml"), []byte(byKustomize[0]), 0o600); err != nil {
		s.Fatal(err)
	}
	for _, way := range []struct{ come, leave string }{{byKustomize[1], away}, {byHelm[0], otherwise}} {
		s.typed(dir, way.come, 0)
		s.rolledOut("offramp", "deployment/offramp-aggregator", "daemonset/offramp-agent")
		for _, block := range install["See it"] {
			for line := range strings.Lines(block) {
				s.typed(dir, line, -1)
			}
		}
		s.typed(dir, way.leave, 0)
		for line := range strings.Lines(uninstall[""][len(uninstall[""])-1]) {
			if out := s.typed(dir, line, notAnAnswer); out != "" {
				s.Errorf("left: %s: %s", line, out)
			}
		}
		s.isGone(before)
	}
}

// checkout is a folder as somebody has who has cloned the repository, and the nodes have the images that he pushed.
func (s *stage) checkout() string {
	s.Helper()
	dir := filepath.Join(s.dir, "checkout")
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS("../../deploy")); err != nil {
		s.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "offramp"), 0o755); err != nil {
		s.Fatal(err)
	}
	helm, err := kube.Build(s.Context(), kube.Helm, s.Output())
	if err != nil {
		s.Fatal(err)
	}
	for name, program := range map[string]string{"kubectl": s.Kubectl, "helm": helm} {
		if err := os.Symlink(program, filepath.Join(s.Dir, name)); err != nil {
			s.Fatal(err)
		}
	}
	for node := range s.Nodes {
		for _, image := range []string{"offramp-agent", "offramp-aggregator"} {
			s.feed(node, "", "ctr", "--namespace", "k8s.io", "images", "tag",
				"ghcr.io/offramp-dev/"+image+":dev", documentedRegistry+"/"+image+":"+documentedTag)
		}
	}
	return dir
}

// typed runs what a document has as a person types it. Exit code -1 is any that is an answer.
func (s *stage) typed(dir, command string, want int) string {
	s.Helper()
	out, code := s.run("bash", "-o", "pipefail", "-ec", "cd "+dir+"\n"+command)
	if code != want && (want != -1 || code == notAnAnswer) {
		s.Errorf("%s: exit status %d: %s", command, code, out)
	}
	return out
}

// sections are the indented blocks of a document, by the headings that they stand under; "" is what comes before the first.
func (s *stage) sections(name string) map[string][]string {
	s.Helper()
	content, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		s.Fatal(err)
	}
	all, heading, inside := map[string][]string{}, "", false
	for line := range strings.Lines(string(content)) {
		if title, is := strings.CutPrefix(line, "## "); is {
			heading = strings.TrimSpace(title)
		}
		text, is := strings.CutPrefix(line, "    ")
		switch {
		case is && inside:
			all[heading][len(all[heading])-1] += text
		case is:
			all[heading] = append(all[heading], text)
		}
		inside = is
	}
	return all
}
