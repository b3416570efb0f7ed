// Program bench measures one aggregator under simulated fleets.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"offramp.dev/offramp/e2e/fleetsim"
)

func main() {
	program := flag.String("aggregator", "bin/offramp-aggregator", "")
	nodes := flag.Int("nodes", 1000, "")
	settle := flag.Duration("settle", 30*time.Second, "")
	arrive := flag.Duration("arrive", 20*time.Second, "")
	cpu := flag.Int("cpu", -1, "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *program, *nodes, *cpu, *arrive, *settle); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, n, cpu int, arrive, settle time.Duration) error {
	files, err := fleetsim.RaiseLimits()
	if err != nil {
		return err
	}
	n = min(n, files-100)
	issuer, err := fleetsim.NewIssuer()
	if err != nil {
		return err
	}
	names := fleetsim.Names(n)
	api := fleetsim.NewAPI(issuer, names)
	defer api.Close()
	dir, err := os.MkdirTemp("", "fleetsim-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	log, _ := os.Create("/tmp/h9/aggregator.log")
	aggregator, err := fleetsim.Start(ctx, fleetsim.Launch{Program: program, Dir: dir, API: api, CPU: cpu, Log: log})
	if err != nil {
		return err
	}
	defer aggregator.Stop()
	time.Sleep(3 * time.Second)
	before, err := aggregator.Usage(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("empty: rss %d KiB peak %d\n", before.Resident>>10, before.Peak>>10)
	fleet, err := fleetsim.New(ctx, fleetsim.Config{Names: names, Address: aggregator.Address, Authority: api.Authority(), Issuer: issuer})
	if err != nil {
		return err
	}
	defer fleet.Close()
	began := time.Now()
	fleet.Arrive(arrive)
	person, err := fleetsim.NewPerson(aggregator.Address, issuer, api.Authority())
	if err != nil {
		return err
	}
	defer person.Close()
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	_, err = person.AwaitComplete(limited, n)
	fmt.Println("complete after", time.Since(began), err)
	fmt.Printf("%+v\n", fleet.Counts())
	if err != nil {
		return err
	}
	from, _ := aggregator.Usage(ctx)
	time.Sleep(settle)
	u, err := aggregator.Usage(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("rss/node %.1f KiB (above empty %.1f), peak/node %.1f, heap %.1f stacks %.1f KiB/node, goroutines %.2f/node, share %.3f\n",
		float64(u.Resident)/1024/float64(n), float64(u.Resident-before.Resident)/1024/float64(n), float64(u.Peak)/1024/float64(n), u.HeapInUse/1024/float64(n), u.Stacks/1024/float64(n), u.Goroutines/float64(n), fleetsim.Share(from, u))
	fmt.Println(api.Requests())
	fmt.Printf("%+v\n", fleet.Counts())
	if os.Getenv("WAIT") != "" {
		fmt.Println("waiting, pid", aggregator.PID())
		<-ctx.Done()
	}
	return nil
}
