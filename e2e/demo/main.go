// Program demo shows the main job: three virtual machines with three kernels and three node states, an agent in each, an
// aggregator beside them, and what a person gets to see. It checks every count it shows against the native tools in the
// same machine and fails where they disagree.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// limit is how long the whole demo may take, a first fetch of three kernels included.
const limit = 10 * time.Minute

// maxSeed keeps the seeded addresses within one /24 per kind.
const maxSeed = 200

// settings are the flags.
type settings struct {
	bin  string // folder with the three programs
	seed int
	// standIn asks for the stand-in for kube-proxy where the real one is at hand, too.
	standIn bool
}

func main() {
	var s settings
	flag.StringVar(&s.bin, "bin", "bin", "folder with offramp-agent, offramp-aggregator and kubectl-offramp")
	flag.IntVar(&s.seed, "seed", 0, "how many virtual servers as kube-proxy leaves them, foreign virtual servers and foreign sets to add to the dirty node")
	flag.BoolVar(&s.standIn, "stand-in", false, "do not run the real kube-proxy, but a stand-in beside restored captures")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := run(ctx, s)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if s.seed < 0 || s.seed > maxSeed {
		return fmt.Errorf("-seed %d: it must be from 0 to %d", s.seed, maxSeed)
	}
	bin, err := filepath.Abs(s.bin)
	if err != nil {
		return fmt.Errorf("finding the programs: %w", err)
	}
	work, err := os.MkdirTemp("", "offramp-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for certificates and logs: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()

	stage, err := setUp(ctx, s, bin, work)
	if err != nil {
		return err
	}
	err = stage.show(ctx)
	if closing := stage.close(); err == nil {
		err = closing
	}
	return err
}
