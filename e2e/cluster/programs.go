package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// endpointPackage is the program that pods run, as listeners and to make requests.
const endpointPackage = "offramp.dev/offramp/e2e/cluster/endpoint"

// programs are the paths of the binaries that every cluster needs.
type programs struct{ etcd, apiserver, endpoint string }

func findPrograms(ctx context.Context, log io.Writer) (p programs, err error) {
	if p.etcd, err = kube.Build(ctx, kube.Etcd, log); err != nil {
		return p, err
	}
	if p.apiserver, err = kube.Build(ctx, kube.APIServer, log); err != nil {
		return p, err
	}
	p.endpoint, err = buildEndpoint(ctx)
	return p, err
}

// buildEndpoint keeps the program under a name that tells its content, so that tests that run at the same time do not
// replace each other's.
func buildEndpoint(ctx context.Context) (string, error) {
	scratch, err := os.MkdirTemp("", "endpoint-*")
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	built := filepath.Join(scratch, "endpoint")
	if err := lab.GoBuild(ctx, endpointPackage, built); err != nil {
		return "", err
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return "", fmt.Errorf("reading a built program: %w", err)
	}
	sum := sha256.Sum256(content)
	name := filepath.Join("programs", "endpoint-"+hex.EncodeToString(sum[:12]))
	return lab.Cached(ctx, name, func(path string) error { return os.WriteFile(path, content, 0o755) })
}
