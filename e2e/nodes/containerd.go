package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"offramp.dev/offramp/e2e/cluster"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	// SandboxImage is the image of a program that does nothing, which every node has.
	SandboxImage = "offramp.lab/pause:1"
)

// containerdConfig is for containerd 1.6. The host gives no process a lower OOM score than its own.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "` + containerdSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + SandboxImage + `"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
`

// networkConfig gives each pod a link to the node alone: what goes elsewhere is routed.
func networkConfig(pods string) string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "lab", "plugins": [
{"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "dataDir": "/run/cni", "routes": [{"dst": "0.0.0.0/0"}]}},
{"type": "portmap", "capabilities": {"portMappings": true}}]}
`, pods)
}

func (n *Node) startContainerd(ctx context.Context) error {
	if err := errors.Join(
		n.write(ctx, "/etc/containerd/config.toml", containerdConfig),
		n.write(ctx, "/etc/cni/net.d/10-lab.conflist", networkConfig(n.PodRange())),
		n.write(ctx, "/etc/resolv.conf", ""),
	); err != nil {
		return err
	}
	var err error
	if n.containerd, err = n.Start(ctx, nil, "containerd", "--config", "/etc/containerd/config.toml"); err != nil {
		return err
	}
	err = waitFor(ctx, n.containerd, func() bool {
		result, err := n.Run(ctx, "ctr", "version")
		return err == nil && result.ExitCode == 0
	})
	if err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	return n.importPause(ctx)
}

func (n *Node) importPause(ctx context.Context) error {
	program, err := built(ctx, pausePackage)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nodes-*")
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "pause.tar")
	if err := WriteImage(path, Image{Name: SandboxImage, Files: map[string]string{"/pause": program}, Command: []string{"/pause"}}); err != nil {
		return err
	}
	return n.Import(ctx, path)
}

// Import gives containerd images from archives, as docker save writes them, of the host.
func (n *Node) Import(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		// Read by the shell of the host: the node sees another /tmp.
		content, err := os.Open(archive)
		if err != nil {
			return fmt.Errorf("opening an image: %w", err)
		}
		packed, err := io.ReadAll(content)
		_ = content.Close()
		if err != nil {
			return fmt.Errorf("reading an image: %w", err)
		}
		result, err := n.RunInput(ctx, packed, "ctr", "--namespace", "k8s.io", "images", "import", "-")
		if err == nil && result.ExitCode != 0 {
			err = errors.New(result.Stderr)
		}
		if err != nil {
			return fmt.Errorf("importing %s: %w", archive, err)
		}
	}
	return nil
}

// Images are the names of the images that containerd has.
func (n *Node) Images(ctx context.Context) ([]string, error) {
	result, err := n.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "list", "--quiet")
	if err == nil && result.ExitCode != 0 {
		err = errors.New(result.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the images of %s: %w", n.Name, err)
	}
	return strings.Fields(result.Stdout), nil
}

var _ cluster.Machine = (*Node)(nil)
