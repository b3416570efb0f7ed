// Program kube-proxy is the real one, built from its own module.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as upstream's main: client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // and kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() { os.Exit(cli.Run(app.NewProxyCommand())) }
