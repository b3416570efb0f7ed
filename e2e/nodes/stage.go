package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// Spec is a node of a stage.
type Spec struct {
	Name string
	// Proxies are the kube-proxies of the node, one after the other. Each is stopped once it was in sync, but for the last.
	Proxies []cluster.ProxyConfig
}

// Stage is a cluster that has all that a cluster has: a control plane, nodes with kubelets and kube-proxies, names.
type Stage struct {
	Cluster *cluster.Cluster
	Nodes   map[string]*Node
	Proxies map[string]*cluster.Proxy
	// Kubectl is the path of the program.
	Kubectl string
	// Dir is a folder that goes with the stage, also when this process is killed. The administrator's kubeconfig lies there.
	Dir string

	lab     *lab.Lab
	sweeper *sweeper // of Dir
}

// StartStage makes a cluster with nodes that have the images of some archives. What it builds first says so on log. A stage
// that comes with an error has to be closed, too.
func StartStage(ctx context.Context, l *lab.Lab, log io.Writer, specs []Spec, images ...string) (*Stage, error) {
	s := &Stage{lab: l, Nodes: map[string]*Node{}, Proxies: map[string]*cluster.Proxy{}}
	for _, step := range []func() error{
		func() error { return s.makeDir(ctx) },
		func() (err error) {
			s.Kubectl, err = kube.Build(ctx, kube.Kubectl, log)
			return err
		},
		func() error { return s.startCluster(ctx, log, specs) },
		func() error { return s.addNodes(ctx, specs, images) },
		func() error { return s.startProxies(ctx, specs) },
		func() error { return s.startDNS(ctx) },
	} {
		if err := step(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Stage) makeDir(ctx context.Context) error {
	program, err := built(ctx, machinePackage)
	if err != nil {
		return err
	}
	if s.sweeper, err = startSweeper(program, fmt.Sprintf("offramp-%d", os.Getpid()), false); err != nil {
		return err
	}
	s.Dir = s.sweeper.disk
	return nil
}

func (s *Stage) startCluster(ctx context.Context, log io.Writer, specs []Spec) (err error) {
	options := cluster.Options{Log: log}
	for _, spec := range specs {
		options.Kubelets = append(options.Kubelets, spec.Name)
	}
	if s.Cluster, err = cluster.Start(ctx, s.lab, options); err != nil {
		return err
	}
	return os.WriteFile(s.kubeconfig(), []byte(s.Cluster.Kubeconfig("")), 0o600)
}

// kubeconfig is the administrator's in the lab's network.
func (s *Stage) kubeconfig() string { return filepath.Join(s.Dir, "lab.conf") }

// addNodes makes all nodes at the same time.
func (s *Stage) addNodes(ctx context.Context, specs []Spec, images []string) error {
	dns, err := WriteDNSImage(ctx, s.Dir)
	if err != nil {
		return err
	}
	made := make([]*Node, len(specs))
	// Not with a context of the group's: the nodes live longer.
	var group errgroup.Group
	for i, spec := range specs {
		group.Go(func() (err error) {
			made[i], err = Add(ctx, s.Cluster, cluster.NodeSpec{Name: spec.Name, Proxy: kube.Proxy137}, append([]string{dns}, images...)...)
			return err
		})
	}
	err = group.Wait()
	for i, spec := range specs {
		if made[i] != nil {
			s.Nodes[spec.Name] = made[i]
		}
	}
	return err
}

func (s *Stage) startProxies(ctx context.Context, specs []Spec) error {
	for _, spec := range specs {
		for _, config := range spec.Proxies {
			if before := s.Proxies[spec.Name]; before != nil {
				if err := before.End(); err != nil {
					return err
				}
			}
			p, err := s.Nodes[spec.Name].SyncedProxy(ctx, config)
			if err != nil {
				return err
			}
			s.Proxies[spec.Name] = p
		}
	}
	return nil
}

func (s *Stage) startDNS(ctx context.Context) error {
	for _, step := range []struct {
		input string
		args  []string
	}{
		{DNSManifest(), []string{"apply", "-f", "-"}},
		{"", []string{"--namespace", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s"}},
	} {
		out, code, err := s.Exec(ctx, step.input, append([]string{s.Kubectl}, step.args...)...)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit status %d: %s", code, out)
		}
		if err != nil {
			return fmt.Errorf("starting DNS: kubectl %s: %w", strings.Join(step.args, " "), err)
		}
	}
	return nil
}

// Exec runs a program in the lab's network to its end, as the administrator, and returns all that it wrote and its exit
// status. Programs in Dir are found by their names.
func (s *Stage) Exec(ctx context.Context, input string, argv ...string) (string, int, error) {
	cmd := s.lab.Command(ctx, argv...)
	cmd.Env = append(os.Environ(), "HOME="+s.Dir, "KUBECONFIG="+s.kubeconfig(), "PATH="+s.Dir+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out.String(), 0, err
	}
	return out.String(), cmd.ProcessState.ExitCode(), nil
}

// processes are all that make up the cluster.
func (s *Stage) processes() map[string]cluster.Process {
	all := map[string]cluster.Process{}
	if s.Cluster != nil {
		all = s.Cluster.Processes()
	}
	for name, n := range s.Nodes {
		for part, p := range n.processes() {
			all[name+"-"+part] = p
		}
	}
	for name, p := range s.Proxies {
		all[name+"-kube-proxy"] = p
	}
	return all
}

// Logs returns what all that makes up the cluster has written so far.
func (s *Stage) Logs() map[string]string {
	logs := map[string]string{}
	for name, p := range s.processes() {
		logs[name] = p.Output()
	}
	return logs
}

// Wait waits until ctx ends. It is an error when a part of the cluster ends before.
func (s *Stage) Wait(ctx context.Context) error {
	all := s.processes()
	ended := make(chan string, len(all))
	for name, p := range all {
		go func() {
			<-p.Done()
			ended <- name
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case name := <-ended:
		if ctx.Err() != nil {
			return nil //nolint:nilerr // that is why it has ended
		}
		text := all[name].Output()
		return fmt.Errorf("%s has ended; it said: %s", name, text[max(0, len(text)-2000):])
	}
}

// Close ends all of the stage and removes what it had.
func (s *Stage) Close() error {
	var all error
	for _, n := range s.Nodes {
		all = errors.Join(all, n.Close())
	}
	if s.Cluster != nil {
		all = errors.Join(all, s.Cluster.Stop())
	}
	if s.sweeper != nil {
		all = errors.Join(all, s.sweeper.end())
	}
	return all
}
