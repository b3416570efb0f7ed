package cluster

import (
	"context"
	"fmt"
	"time"

	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// startControllers starts what makes pods of Deployments and DaemonSets, tokens for service accounts, endpoints of
// Services, and gives pods their nodes. They are administrators, for what they may do is not what is tested here.
func (p *plane) startControllers(ctx context.Context, l *lab.Lab, log *stepLog) error {
	began := time.Now()
	p.controllers = map[string]*hostProcess{}
	for _, program := range []kube.Program{kube.Controller, kube.Scheduler} {
		path, err := kube.Build(ctx, program, log)
		if err != nil {
			return err
		}
		files := map[string]string{"kubeconfig": p.kubeconfig(p.api.base, p.api.token), "ca.pem": p.ca, "accounts-key.pem": p.accountsKey}
		process, err := startPrivate(ctx, l, files, controllerCommand(program, path)...)
		if err != nil {
			return fmt.Errorf("starting %s: %w", program.Name, err)
		}
		p.controllers[program.Name] = process
	}
	log.step(began, "kube-controller-manager and kube-scheduler are started")
	return nil
}

func controllerCommand(program kube.Program, path string) []string {
	command := []string{path, "--kubeconfig", "kubeconfig", "--leader-elect=false", "--secure-port", "0", "--v", "1"}
	if program == kube.Controller {
		command = append(command, "--service-account-private-key-file", "accounts-key.pem", "--root-ca-file", "ca.pem",
			"--allocate-node-cidrs=false", "--node-monitor-period", "1s")
	}
	return command
}
