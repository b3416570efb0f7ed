package main

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"

	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/orders"
	"offramp.dev/offramp/agent/stream"
	"offramp.dev/offramp/internal/bearer"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/settings"
	"offramp.dev/offramp/internal/tlsfiles"
)

// defaultScanInterval is how often the node is read when nothing announces a change.
const defaultScanInterval = 30 * time.Second

// reporting is what it takes to report a node to its aggregators.
type reporting struct {
	config       collect.Config
	aggregators  []string
	credentials  credentials.TransportCredentials
	token        *bearer.File // nil for none
	scanInterval time.Duration
	cleanup      orders.Policy
	stateDir     string
	// metricsListen is where metrics are served; empty for nowhere.
	metricsListen string
	// connect has connections tried around clean-ups.
	connect bool
	log     *slog.Logger
}

// daemon are the settings of run.
type daemon struct {
	*options
	aggregators  []string
	scanInterval time.Duration
	startWithin  time.Duration
	cleanup      string
	stateDir     string
	tls          tlsfiles.Client
	tokenFile    string
	metrics      string
	noConnect    bool
}

func runCommand(c *options) *cobra.Command {
	d := &daemon{options: c, cleanup: string(orders.Never)}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Report this node to one or more aggregators until stopped",
		Long: `Read this node again and again and report what changed to every aggregator named,
until SIGTERM or SIGINT. An aggregator that cannot be reached is tried again for
ever, at growing intervals.

A name is looked up again and again, and each of its addresses (up to 16) is a
replica of the aggregator that gets a stream of its own; certificates are
compared with the name. Addresses are remembered in --state-dir and used while
DNS does not answer. Two addresses of one process get one stream.

With --cleanup=plan it also makes plans of a clean-up when an aggregator passes on
an order for one; with --cleanup=apply it does them and undoes them, behind the
same guards as "offramp-agent cleanup". Nobody can override a guard or assert
anything from afar. Orders and results are kept in --state-dir, so that none is
done twice or forgotten when the agent is restarted.

TLS is used unless --insecure-plaintext says otherwise. Files with certificates
are read again for each connection, so that they may be renewed.`,
		Example: `  offramp-agent run --aggregator offramp-aggregator:8443 --ca-file /etc/offramp/ca.pem
  offramp-agent run --aggregator 10.0.0.5:8443 --aggregator 10.0.0.6:8443 --node worker-1
  OFFRAMP_AGGREGATOR=a:8443,b:8443 NODE_NAME=worker-1 offramp-agent run --log-format json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), cmd.ErrOrStderr()) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&d.aggregators, "aggregator", nil, "aggregators, host:port: each address of the host is a replica that is reported to; may be repeated")
	flags.DurationVar(&d.scanInterval, "scan-interval", defaultScanInterval, "how long to wait between two readings of the node")
	flags.DurationVar(&d.startWithin, "start-within", 0,
		"begin after a random time of up to this, so that the agents of a fleet that start at once do not call at once")
	flags.Var(settings.Choice(&d.cleanup, string(orders.Never), string(orders.Plan), string(orders.Apply)), "cleanup",
		"what aggregators may order: never, plan, apply")
	flags.StringVar(&d.metrics, "metrics-listen", "", "where to serve metrics for Prometheus, address:port; empty for nowhere")
	flags.BoolVar(&d.noConnect, "no-connect", false, "try no connections to Services before and after a clean-up")
	flags.StringVar(&d.stateDir, "state-dir", defaultStateDir,
		"where orders, backups, journal and the node's history are kept: on a disk of the host; empty for nowhere, and then nothing is applied")
	d.tls.AddFlags(flags)
	d.addTokenFlag(flags)
	return cmd
}

func (d *daemon) run(ctx context.Context, stderr io.Writer) error {
	if err := d.check(); err != nil {
		return program.UsageError{Err: err}
	}
	config, err := d.config()
	if err != nil {
		return err
	}
	if err := checkNode(config.Node); err != nil {
		return program.UsageError{Err: err}
	}
	creds, err := d.tls.Credentials()
	if err != nil {
		return err
	}
	token, err := d.token()
	if err != nil {
		return err
	}
	log := newLog(stderr, d.logFormat, d.logLevel)
	log.Info("reporting", "node", config.Node, "aggregators", d.aggregators, "version", config.AgentVersion,
		"plaintext", d.tls.InsecurePlaintext, "token", token != nil, "scan_interval", d.scanInterval)
	config.History = true
	waitUpTo(ctx, d.startWithin)
	var failure error
	if ctx.Err() == nil {
		failure = d.report(ctx, reporting{
			config: config, aggregators: d.aggregators, credentials: creds, token: token, scanInterval: d.scanInterval,
			cleanup: orders.Policy(d.cleanup), stateDir: d.stateDir, metricsListen: d.metrics, connect: !d.noConnect, log: log,
		})
	}
	if ctx.Err() == nil {
		return failure
	}
	log.Info("stopped", "reason", context.Cause(ctx))
	return nil
}

// check looks for mistakes that need no reading of the node.
func (d *daemon) check() error {
	if len(d.aggregators) == 0 {
		return program.Usagef("which aggregator? Name it with --aggregator host:port or OFFRAMP_AGGREGATOR")
	}
	if _, err := stream.Targets(d.aggregators); err != nil {
		return program.Usagef("--aggregator wants host:port: %w", err)
	}
	if d.metrics != "" {
		if _, _, err := net.SplitHostPort(d.metrics); err != nil {
			return program.Usagef("--metrics-listen wants address:port, not %q", d.metrics)
		}
	}
	if d.scanInterval <= 0 {
		return program.Usagef("--scan-interval must be longer than nothing, not %s", d.scanInterval)
	}
	if d.startWithin < 0 {
		return program.Usagef("--start-within must not be negative, as %s is", d.startWithin)
	}
	return d.tls.Check()
}

// checkNode wants a name as the API server allows it: a DNS subdomain of at most 253 bytes.
func checkNode(name string) error {
	label := `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	if len(name) > 253 || !regexp.MustCompile(`^`+label+`(\.`+label+`)*$`).MatchString(name) {
		return program.Usagef("%q is no Kubernetes node name; name this node with --node, OFFRAMP_NODE or NODE_NAME", name)
	}
	return nil
}

// waitUpTo waits for a random time below most, or for the end of ctx.
func waitUpTo(ctx context.Context, most time.Duration) {
	if most <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rand.N(most)) //nolint:gosec // spreads load, keeps no secret
	defer cancel()
	<-ctx.Done()
}
