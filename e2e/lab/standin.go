package lab

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/captures"
)

const (
	standInPackage = "offramp.dev/offramp/e2e/standin"
	standInProgram = "/usr/local/bin/kube-proxy"
	standInFolder  = "/run/offramp-standin"
	// standInLimit is how long the stand-in may take to answer.
	standInLimit = 30 * time.Second
)

// StandIn starts, in a guest, a process named kube-proxy that serves a capture's endpoints with times that move with the
// clock; see e2e/standin. Its command line is the capture's, and the configuration file which that names is there. It
// changes nothing in the kernel. Whoever uses it says "stand-in" to people.
func StandIn(ctx context.Context, g *Guest, capture string) (*Process, error) {
	began := time.Now()
	cmdline, err := captures.Read(capture, "cmdline.txt")
	if err != nil {
		return nil, fmt.Errorf("no kube-proxy ran when %s was captured: %w", capture, err)
	}
	argv := strings.Fields(string(cmdline))
	if err := putStandIn(ctx, g, capture, argv); err != nil {
		return nil, fmt.Errorf("bringing the stand-in for kube-proxy to %s: %w", g.Name, err)
	}
	process, err := g.Start(ctx, Command{
		Argv: append([]string{standInProgram}, argv[1:]...), Env: []string{"OFFRAMP_STANDIN_CAPTURE=" + standInFolder},
	})
	if err != nil {
		return nil, err
	}
	if err := waitStandIn(ctx, g, process); err != nil {
		_, _ = process.Kill()
		return nil, err
	}
	g.lab.logf(began, "%s has a stand-in for kube-proxy, not the real one", g.Name)
	return process, nil
}

func putStandIn(ctx context.Context, g *Guest, capture string, argv []string) error {
	built, err := g.lab.program(ctx, standInPackage, "kube-proxy")
	if err != nil {
		return err
	}
	if err := g.PutFile(ctx, standInProgram, built); err != nil {
		return err
	}
	for _, file := range []string{"proxyMode.txt", "metrics.txt", "healthz.json"} {
		content, err := captures.Read(capture, file)
		if err != nil {
			return err
		}
		if err := g.Put(ctx, path.Join(standInFolder, file), strings.NewReader(string(content)), 0o644); err != nil {
			return err
		}
	}
	file, config := configurationFile(argv)
	if file == "" {
		return nil
	}
	return g.Put(ctx, file, strings.NewReader(config), 0o644)
}

// configurationFile returns the file that --config names and what it holds. The captures' kube-proxies had theirs named
// by the mode.
func configurationFile(argv []string) (string, string) {
	named := regexp.MustCompile(`--config[ =](\S*/(\w+)\.conf)`).FindStringSubmatch(strings.Join(argv, " "))
	if named == nil {
		return "", ""
	}
	return named[1], fmt.Sprintf("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\n", named[2])
}

// waitStandIn waits until the stand-in says that it serves. It says so before the kernel has its sockets open by no more
// than an instant, and so it is asked too.
func waitStandIn(ctx context.Context, g *Guest, process *Process) error {
	ctx, cancel := context.WithTimeout(ctx, standInLimit)
	defer cancel()
	for {
		result, err := g.Run(ctx, "wget", "-q", "-O", "-", "http://127.0.0.1:10249/proxyMode")
		if err != nil {
			return fmt.Errorf("waiting for the stand-in on %s: %w", g.Name, err)
		}
		if result.ExitCode == 0 {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("the stand-in on %s ended: %s", g.Name, process.Output())
		case <-ctx.Done():
			return fmt.Errorf("the stand-in on %s does not answer: %w: %s", g.Name, ctx.Err(), process.Output())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
