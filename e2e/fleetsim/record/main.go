// Program record takes what agents of real node states report: for each capture a machine is given its kernel state and a
// stand-in for its kube-proxy, and the agent in it reports to an aggregator beside it, which is then asked. The reports go to
// testdata, where the simulator of fleets takes them from.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/lab"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// limit is how long one capture may take; machines without KVM take a minute to boot and to be filled.
	limit = 10 * time.Minute
	// settle is how long the agent may look at the node: two scans, the second with a memory of the first.
	settle  = 20 * time.Second
	kernel  = "6.1"
	address = "127.0.0.1:8443"
	node    = "node-0"
)

func main() {
	bin := flag.String("bin", "bin", "folder with the three programs")
	to := flag.String("o", "e2e/fleetsim/testdata", "folder for the reports")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := record(ctx, *bin, *to, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording reports:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, bin, to string, captures []string) (err error) {
	machines, err := lab.Start(ctx, lab.Options{Log: os.Stderr})
	if err != nil {
		return fmt.Errorf("starting the lab: %w", err)
	}
	defer func() { _ = machines.Close() }()
	for _, capture := range captures {
		facts, err := report(ctx, machines, bin, capture)
		if err != nil {
			return fmt.Errorf("%s: %w", capture, err)
		}
		if err := write(filepath.Join(to, capture+".json"), facts); err != nil {
			return err
		}
	}
	return nil
}

// report boots a machine with the state of a capture and returns what its agent says.
func report(ctx context.Context, machines *lab.Lab, bin, capture string) (*offrampv1.NodeFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	guest, err := machines.Boot(ctx, lab.VM{Name: "recorded", Kernel: kernel, Files: programs(bin)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = guest.Close() }()
	if err := lab.Restore(ctx, guest, capture); err != nil {
		return nil, err
	}
	if _, err := lab.StandIn(ctx, guest, capture); err != nil {
		return nil, err
	}
	for _, argv := range [][]string{
		{"/bin/offramp-aggregator", "run", "--auth", "none", "--insecure-plaintext", "--listen", address, "--heartbeat-interval", "1s"},
		{"/bin/offramp-agent", "run", "--node", node, "--aggregator", address, "--insecure-plaintext", "--scan-interval", "5s", "--state-dir", "/var/lib/offramp"},
	} {
		if _, err := guest.Start(ctx, lab.Command{Argv: argv}); err != nil {
			return nil, err
		}
	}
	return ask(ctx, guest)
}

// ask asks the aggregator in the machine what it knows of the node.
func ask(ctx context.Context, guest *lab.Guest) (*offrampv1.NodeFacts, error) {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	said, err := guest.Output(ctx, "/bin/kubectl-offramp", "--aggregator", address, "--insecure-plaintext", "node", node, "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("asking for the node: %w", err)
	}
	answer := &offrampv1.GetNodeResponse{}
	if err := protojson.Unmarshal([]byte(strings.TrimSpace(said)), answer); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return answer.GetFacts(), nil
}

func programs(bin string) []lab.File {
	var files []lab.File
	for _, name := range []string{"offramp-agent", "offramp-aggregator", "kubectl-offramp"} {
		files = append(files, lab.File{Path: "/bin/" + name, Host: filepath.Join(bin, name), Mode: 0o755})
	}
	return files
}

func write(path string, facts *offrampv1.NodeFacts) error {
	text, err := protojson.MarshalOptions{Multiline: true, Indent: " "}.Marshal(facts)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
