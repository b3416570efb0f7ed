// Command build builds the real kube-proxy, kube-apiserver and etcd that the tests of e2e/cluster run, and prints where
// they are. -all is with those that only make e2e-all and make record run, -nodes with those of make e2e-deploy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"offramp.dev/offramp/e2e/cluster/kube"
)

func main() {
	all := flag.Bool("all", false, "build the older kube-proxy, too")
	nodes := flag.Bool("nodes", false, "build kubelet, kube-controller-manager, kube-scheduler and kubectl, too")
	flag.Parse()
	if err := run(*all, *nodes); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(all, nodes bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	programs := []kube.Program{kube.Etcd, kube.Proxy137, kube.APIServer}
	if all {
		programs = append(programs, kube.Proxy134)
	}
	if nodes {
		programs = append(programs, kube.Kubelet, kube.Controller, kube.Scheduler, kube.Kubectl, kube.CoreDNS, kube.Helm)
	}
	for _, p := range programs {
		path, err := kube.Build(ctx, p, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
