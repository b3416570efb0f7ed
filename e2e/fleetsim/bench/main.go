// Program bench measures one aggregator under simulated fleets and writes what came out into docs/performance.md, between the
// marks that stand there. Nothing else writes figures into that file.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"offramp.dev/offramp/e2e/fleetsim"
)

// settings are the flags.
type settings struct {
	program, document string
	// place is the name of the marks between which the tables stand.
	place string
	sizes string
	// arrive is how long 1,000 nodes take to arrive, settle how long nothing happens, churn how long something does.
	arrive, settle, churn time.Duration
	rate                  float64
	restart               bool
	// storms is the size from which on a fleet sees all of them; smaller ones are only restarted.
	storms int
	// held is how many nodes more have reported and left, so that only their state is held.
	held int
	// dieEvery: one node of so many goes away without a word while the others change.
	dieEvery              int
	aggregatorCPU, ownCPU int
}

func main() {
	s := settings{}
	flag.StringVar(&s.program, "aggregator", "bin/offramp-aggregator", "the program to measure")
	flag.StringVar(&s.document, "o", "", "file to write the tables into; empty for none")
	flag.StringVar(&s.place, "place", "bench-fleet", "the name in the marks between which the tables stand")
	flag.StringVar(&s.sizes, "nodes", "1000,5000,10000,20000", "how many nodes, one run each")
	flag.DurationVar(&s.arrive, "arrive", 5*time.Second, "how long 1,000 nodes take to arrive")
	flag.DurationVar(&s.settle, "settle", 90*time.Second, "how long the fleet stays unchanged while that is measured")
	flag.DurationVar(&s.churn, "churn", time.Minute, "how long it changes")
	flag.Float64Var(&s.rate, "rate", 200, "changed reports a second while it changes")
	flag.BoolVar(&s.restart, "restart", true, "restart the aggregator in the end and wait for everybody")
	flag.IntVar(&s.storms, "storms", 10000, "in fleets of at least so many nodes, change every node within a minute, ask all, and cut all connections at once")
	flag.IntVar(&s.held, "state", 0, "nodes beside those with a stream, which have reported and left; leaves storms and restart out")
	flag.IntVar(&s.dieEvery, "dead", 1000, "one node of so many goes away without a word while the others change; 0 for none")
	flag.IntVar(&s.aggregatorCPU, "aggregator-cpu", 0, "the processor of the aggregator; -1 for any")
	flag.IntVar(&s.ownCPU, "cpu", 1, "the processor of the simulator; -1 for any")
	flag.Parse()
	if s.held > 0 {
		s.storms, s.restart = math.MaxInt, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "measuring:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	files, err := fleetsim.RaiseLimits()
	if err != nil {
		return err
	}
	var results []*result
	for text := range strings.SplitSeq(s.sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-nodes wants numbers: %w", err)
		}
		if most := files - reserve; n > most {
			fmt.Printf("%d nodes: this machine allows %d open files for a process, so %d\n", n, files, most)
			n = most
		}
		r, err := measure(ctx, s, n)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		results = append(results, r)
		fmt.Print(table(results))
	}
	if s.document == "" {
		return nil
	}
	return write(s.document, s, results)
}

// reserve are the files that a process opens beside one for each agent.
const reserve = 100
