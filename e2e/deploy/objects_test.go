package deploy

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// objects are the names of all that the API server has, of every kind that can be listed, with the labels and annotations of
// nodes. Events are news, and end by themselves.
func (s *stage) objects() []string {
	s.Helper()
	var kinds []string
	for kind := range strings.FieldsSeq(s.must("api-resources", "--verbs=list", "-o", "name")) {
		if !strings.HasPrefix(kind, "events") && !strings.HasPrefix(kind, "componentstatuses") {
			kinds = append(kinds, kind)
		}
	}
	names := s.must("get", strings.Join(kinds, ","), "--all-namespaces", "--ignore-not-found",
		"-o", `go-template={{range .items}}{{.kind}} {{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}`)
	nodes := s.must("get", "nodes", "-o", `go-template={{range .items}}labels of {{.metadata.name}}: {{.metadata.labels}}{{"\n"}}{{end}}`)
	all := slices.Concat(kinds, strings.Split(strings.TrimSpace(names), "\n"), strings.Split(strings.TrimSpace(nodes), "\n"))
	slices.Sort(all)
	return all
}

// files are all that a node has on its disk, but for what containerd and kubelet write about pods.
func (s *stage) files(node string) []string {
	s.Helper()
	disk := s.Nodes[node].Disk()
	var all []string
	err := filepath.WalkDir(disk, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone while it is looked at
		}
		name := strings.TrimPrefix(path, disk)
		for _, folder := range []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log"} {
			if name == folder {
				return fs.SkipDir
			}
		}
		all = append(all, name)
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// space is what else of the node an agent could leave: processes, mounts and links.
func (s *stage) space(node string) []string {
	s.Helper()
	const script = `ps -eo comm= | grep -v -e '^ps$' -e '^sh$' -e '^kworker' -e '^cut$' -e '^grep$'; cut -d' ' -f2 /proc/self/mounts; ls /sys/class/net`
	result, err := s.Nodes[node].RunInput(s.Context(), []byte(script), "sh")
	if err != nil || result.ExitCode != 0 {
		s.Fatalf("looking at %s: %v: %s", node, err, result.Stderr)
	}
	lines := strings.Split(strings.TrimSpace(result.Stdout), "\n")
	slices.Sort(lines)
	return lines
}
