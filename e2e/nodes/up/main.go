// Program up runs an empty cluster for a person to try things on: Kubernetes with two nodes that have real kubelets and kube-proxies,
// in network namespaces of this host. It says how to reach it and stays until Ctrl-C, which leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/nodes"
)

// specs are the nodes. The second one went from iptables mode to nftables mode with a kube-proxy that could not clean up: its
// image had no iptables. So there is something to be found.
var specs = []nodes.Spec{
	{Name: "node-1", Proxies: []cluster.ProxyConfig{{Mode: "iptables"}}},
	{Name: "node-2", Proxies: []cluster.ProxyConfig{{Mode: "iptables"}, {Mode: "nftables", Without: []string{"iptables", "ip6tables"}}}},
}

func main() {
	images := flag.String("images", "bin/images", "a folder with archives of images, as make images-tar writes them: the nodes get them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *images)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string) (err error) {
	images, err := filepath.Glob(filepath.Join(folder, "*.tar"))
	if err != nil {
		return fmt.Errorf("looking for images: %w", err)
	}
	l, err := lab.Start(ctx, lab.Options{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	stage, err := nodes.StartStage(ctx, l, os.Stderr, specs, images...)
	defer func() { err = errors.Join(err, stage.Close()) }()
	if err != nil {
		return err
	}
	api, err := openDoor(ctx, l, stage.Cluster.Address())
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }()
	if err := guide(ctx, stage, api.Addr().String(), os.Stdout); err != nil {
		return err
	}
	return stage.Wait(ctx)
}
