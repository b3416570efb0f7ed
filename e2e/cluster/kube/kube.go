// Package kube builds the real kube-proxy, kube-apiserver, etcd, kubelet and so on from their nested modules under e2e/kube, once, into
// the lab's cache folder.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

// Program is one of the real programs.
type Program struct {
	// Name is the program's, as "kube-proxy".
	Name string
	// Version is upstream's, without the v.
	Version string

	module  string // folder under e2e/kube that holds the nested module
	minutes int    // what building it takes the first time on two cores
}

// The programs that the lab has. 1.34 is from before kube-proxy warned of ipvs mode's end.
var (
	Etcd      = Program{"etcd", "3.7.3", "etcd", 2}
	APIServer = Program{"kube-apiserver", "1.37.2", "v1.37", 3}
	Proxy137  = Program{"kube-proxy", "1.37.2", "v1.37", 4}
	Proxy134  = Program{"kube-proxy", "1.34.4", "v1.34", 5}

	// What a cluster with real nodes has beside those: see e2e/nodes.
	Kubelet    = Program{"kubelet", "1.37.2", "v1.37", 3}
	Controller = Program{"kube-controller-manager", "1.37.2", "v1.37", 3}
	Scheduler  = Program{"kube-scheduler", "1.37.2", "v1.37", 1}
	Kubectl    = Program{"kubectl", "1.37.2", "v1.37", 1}
	CoreDNS    = Program{"coredns", "1.15.0", "coredns", 2}
	Helm       = Program{"helm", "4.3.2", "helm", 3}
)

// Build returns the path of a static binary of the program. The first time, and when its module has changed, it builds
// it, which takes minutes and says so on log.
func Build(ctx context.Context, p Program, log io.Writer) (string, error) {
	dir, name, err := p.entry(ctx)
	if err != nil {
		return "", err
	}
	return lab.Cached(ctx, name, func(path string) error {
		began := time.Now()
		_, _ = fmt.Fprintf(log, "building %s %s, about %d minutes the first time\n", p.Name, p.Version, p.minutes)
		if err := p.build(ctx, dir, path); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(log, "built %s %s (%s)\n", p.Name, p.Version, time.Since(began).Round(time.Second))
		return nil
	})
}

// Cached says whether Build has built the program before, so that it is there at once.
func Cached(ctx context.Context, p Program) (bool, error) {
	_, name, err := p.entry(ctx)
	if err != nil {
		return false, err
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return false, err
	}
	_, err = os.Stat(filepath.Join(cache, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// entry is the folder of the program's module, and the name of what is built of it in the cache.
func (p Program) entry(ctx context.Context) (dir, name string, err error) {
	if dir, err = p.dir(); err != nil {
		return "", "", err
	}
	key, err := p.key(ctx, dir)
	if err != nil {
		return "", "", fmt.Errorf("looking at the source of %s: %w", p.Name, err)
	}
	return dir, filepath.Join("kube", fmt.Sprintf("%s-%s-%s", p.Name, p.Version, key)), nil
}

// dir is the folder of the program's module. It is found beside this file's source.
func (p Program) dir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "../../kube", p.module)
	if _, err := os.Stat(dir); !ok || err != nil {
		return "", errors.New("the source of e2e/kube is not where this program was compiled from (do not use -trimpath)")
	}
	return dir, nil
}

// key changes whenever what is built could: with the module's files, the compiler, and how it is called.
func (p Program) key(ctx context.Context, dir string) (string, error) {
	sum := sha256.New()
	for _, file := range []string{"go.mod", "go.sum", filepath.Join(p.Name, "main.go")} {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content)
	}
	version := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	version.Dir = dir
	compiler, err := version.Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its version: %w", err)
	}
	_, _ = fmt.Fprintf(sum, "%s%q", compiler, p.arguments(""))
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

func (p Program) build(ctx context.Context, dir, output string) error {
	// nice: a build on all cores for minutes must not make the tests beside it miss their time limits.
	cmd := exec.CommandContext(ctx, "nice", append([]string{"go"}, p.arguments(output)...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s %s: %w: %s", p.Name, p.Version, err, out)
	}
	return nil
}

func (p Program) arguments(output string) []string {
	return []string{"build", "-trimpath", "-ldflags", "-s -w " + p.stamps(), "-o", output, "./" + p.Name}
}

// stamps sets what upstream's release build sets. The others have their versions in their source.
func (p Program) stamps() string {
	if p == Etcd || p == CoreDNS || p == Helm {
		return ""
	}
	parts := strings.Split(p.Version, ".")
	var flags strings.Builder
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, stamp := range []string{
			"gitVersion=v" + p.Version, "gitMajor=" + parts[0], "gitMinor=" + parts[1], "gitTreeState=clean",
			"gitCommit=built-by-the-offramp-lab", "buildDate=1970-01-01T00:00:00Z",
		} {
			fmt.Fprintf(&flags, " -X %s.%s", pkg, stamp)
		}
	}
	return strings.TrimSpace(flags.String())
}
