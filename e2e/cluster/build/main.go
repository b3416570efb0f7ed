// Command build builds the real kube-proxy, kube-apiserver and etcd that the tests of e2e/cluster run, and prints where
// they are.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"offramp.dev/offramp/e2e/cluster/kube"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, p := range []kube.Program{kube.Etcd, kube.Proxy137, kube.APIServer, kube.Proxy134} {
		path, err := kube.Build(ctx, p, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
