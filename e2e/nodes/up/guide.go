package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/nodes"
)

// guide says how to reach the cluster, and puts what that takes into the stage's folder.
func guide(ctx context.Context, s *nodes.Stage, api string, out io.Writer) error {
	access := filepath.Join(s.Dir, "admin.conf")
	if err := os.WriteFile(access, []byte(s.Cluster.KubeconfigAt("https://"+api, "")), 0o600); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	programs, err := tools(ctx, s)
	if err != nil {
		return err
	}
	images, err := ours(ctx, s)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `
Kubernetes %s is there: %s. Offramp is not in it.
In another shell of this host:

    export KUBECONFIG=%s PATH=%s:$PATH
    kubectl get nodes

That kubectl, and helm, are of this cluster's version. The nodes pull no images; they have
%s
More images, and a shell on a node:

%s
Ctrl-C ends the cluster and removes all of it.
`, kube.Kubelet.Version, strings.Join(modes(), ", "), access, programs, images, shells(s))
	return err
}

// tools makes a folder with the programs that a person needs, by their usual names.
func tools(ctx context.Context, s *nodes.Stage) (string, error) {
	folder := filepath.Join(s.Dir, "bin")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", fmt.Errorf("making a folder of programs: %w", err)
	}
	helm, err := kube.Build(ctx, kube.Helm, os.Stderr)
	if err != nil {
		return "", err
	}
	for name, program := range map[string]string{"kubectl": s.Kubectl, "helm": helm} {
		if err := os.Symlink(program, filepath.Join(folder, name)); err != nil {
			return "", fmt.Errorf("naming %s: %w", name, err)
		}
	}
	return folder, nil
}

// ours are the images of the nodes that are not the lab's.
func ours(ctx context.Context, s *nodes.Stage) (string, error) {
	names, err := s.Nodes[specs[0].Name].Images(ctx)
	if err != nil {
		return "", err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, "sha256:") || strings.HasPrefix(name, "offramp.lab/")
	})
	if len(names) == 0 {
		return "    none of Offramp's: make images-tar writes them", nil
	}
	return "    " + strings.Join(names, "\n    "), nil
}

func modes() []string {
	var all []string
	for _, spec := range specs {
		all = append(all, fmt.Sprintf("%s with kube-proxy in %s mode", spec.Name, spec.Proxies[len(spec.Proxies)-1].Mode))
	}
	return all
}

func shells(s *nodes.Stage) string {
	var text strings.Builder
	for _, spec := range specs {
		enter := s.Nodes[spec.Name].Enter()
		fmt.Fprintf(&text, "    %s ctr --namespace k8s.io images import - <FILE.tar\n    %s bash     # %s\n", enter, enter, spec.Name)
	}
	return text.String()
}
