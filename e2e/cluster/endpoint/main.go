// Command endpoint is what runs in the lab's pods: a listener that says its name, and a client that makes requests one
// after the other and counts which failed. It runs in guests too, so it needs nothing but itself.
//
//	endpoint serve NAME                       listen on port 8080, TCP and UDP, IPv4 and IPv6
//	endpoint get URL                          print what a server on the node answers
//	endpoint accounts                         print nfnetlink's accounting objects
//	endpoint load [-interval D] [-timeout D] [-for D] LABEL=[udp:|long:]IP:PORT...
//
// load says "asking" once it is ready for SIGTERM, and writes one JSON line, a list of reports, when it gets SIGTERM or its time is over.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "endpoint:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 2 && args[0] == "get":
		return get(ctx, args[1], os.Stdout)
	case len(args) == 1 && args[0] == "accounts":
		return accounts(os.Stdout)
	case len(args) > 1 && args[0] == "load":
		return runLoad(ctx, args[1:])
	default:
		return errors.New("want serve NAME, get URL, accounts, or load with targets")
	}
}

func runLoad(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	interval := flags.Duration("interval", 50*time.Millisecond, "time from one request to the next of a target")
	timeout := flags.Duration("timeout", time.Second, "when a request has failed")
	limit := flags.Duration("for", 0, "when to end by itself; 0 is never")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	fmt.Println("asking")
	reports, err := load(ctx, flags.Args(), *interval, *timeout)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(reports)
}
