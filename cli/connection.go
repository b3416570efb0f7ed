package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/tlsfiles"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	defaultTimeout = 10 * time.Second
	// maxReceive bounds an answer, in bytes: a page of 1,000 nodes, or a list of 100,000 addresses.
	maxReceive = 16 << 20
	// keepaliveTime is the shortest that the aggregator allows.
	keepaliveTime    = 5 * time.Minute
	keepaliveTimeout = 20 * time.Second
)

// connection says how to reach the aggregator.
type connection struct {
	aggregator string
	timeout    time.Duration
	tls        tlsfiles.Client
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.aggregator, "aggregator", "", "address of the aggregator, host:port")
	flags.DurationVar(&c.timeout, "timeout", defaultTimeout, "how long one call may take")
	c.tls.AddFlags(flags)
}

// use opens the connection, lets ask use it, and closes it. It does not wait for the aggregator: the first call does.
func (c *connection) use(ask func(offrampv1.FleetServiceClient) error) error {
	if err := c.check(); err != nil {
		return err
	}
	creds, err := c.tls.Credentials()
	if err != nil {
		return err
	}
	// passthrough, so that the error of a failed look-up or dial comes back as it is.
	conn, err := grpc.NewClient("passthrough:///"+c.aggregator, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
	if err != nil {
		return fmt.Errorf("preparing the connection to %s: %w", c.aggregator, err)
	}
	defer func() { _ = conn.Close() }()
	return ask(offrampv1.NewFleetServiceClient(conn))
}

func (c *connection) check() error {
	if c.aggregator == "" {
		return program.Usagef("which aggregator? Name it with --aggregator host:port or OFFRAMP_AGGREGATOR")
	}
	if host, port, err := net.SplitHostPort(c.aggregator); err != nil || host == "" || port == "" {
		return program.Usagef("--aggregator wants host:port, not %q", c.aggregator)
	}
	if c.timeout <= 0 {
		return program.Usagef("--timeout must be longer than nothing, not %s", c.timeout)
	}
	if err := c.tls.Check(); err != nil {
		return program.UsageError{Err: err}
	}
	return nil
}

// deadline bounds one call.
func (c *connection) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}
