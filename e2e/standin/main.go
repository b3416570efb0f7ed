// Command standin stands in for kube-proxy beside a restored capture: it serves the capture's endpoints with timestamps
// that move with the clock. It is built as, and run under the name of, kube-proxy, with whatever arguments the capture's
// kube-proxy had; what to serve is named by an environment variable, so that the command line can be the real one.
//
// It is not kube-proxy: it changes nothing in the kernel. Whatever uses it says "stand-in".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// captureVariable names the folder of the capture.
const captureVariable = "OFFRAMP_STANDIN_CAPTURE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Getenv(captureVariable))
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "stand-in for kube-proxy: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	if dir == "" {
		return fmt.Errorf("%s names no folder with a capture", captureVariable)
	}
	recorded, err := load(os.DirFS(dir))
	if err != nil {
		return err
	}
	recorded.started = time.Now()
	fmt.Printf("stand-in for kube-proxy: serving a capture in mode %s\n", recorded.mode)
	// Where the real one listens by default (cmd/kube-proxy/app/server.go).
	return serveAll(ctx, map[string]server{
		"127.0.0.1:10249": {"metrics", metricsHandler(recorded, time.Now)},
		"0.0.0.0:10256":   {"health", healthHandler(recorded, time.Now)},
	})
}
