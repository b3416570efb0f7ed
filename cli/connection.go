package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"offramp.dev/offramp/cli/cluster"
	"offramp.dev/offramp/internal/bearer"
	"offramp.dev/offramp/internal/orderform"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/tlsfiles"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	defaultTimeout = 10 * time.Second
	// maxReceive bounds an answer, in bytes: a page of 1,000 nodes, or a list of 100,000 addresses.
	maxReceive = 16 << 20
	// maxOrderResult bounds the result of an order, with room for its frame.
	maxOrderResult = orderform.MaxResult + 1<<20
	// keepaliveTime is the shortest that the aggregator allows.
	keepaliveTime    = 5 * time.Minute
	keepaliveTimeout = 20 * time.Second
	// connectTimeout bounds the way to an address, TLS included.
	connectTimeout = 5 * time.Second
)

// connection says how to reach the aggregator.
type connection struct {
	aggregator string
	timeout    time.Duration
	tls        tlsfiles.Client
	tokenFile  string
	cluster    cluster.Settings
}

// The ServiceAccounts whose token a command asks for.
const (
	viewer   = "offramp-viewer"
	operator = "offramp-operator"
)

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.aggregator, "aggregator", "", "address of the aggregator, host:port (default: through the API server of the kubeconfig)")
	flags.DurationVar(&c.timeout, "timeout", defaultTimeout, "how long one call may take")
	flags.StringVar(&c.tokenFile, "token-file", "", "file with a token of one of Offramp's ServiceAccounts, instead of asking a cluster for one")
	c.tls.AddFlags(flags)
	c.cluster.AddFlags(flags)
}

// use opens the connection for somebody who looks, lets ask use it, and closes it. It does not wait for the aggregator or
// the cluster: the first call does.
func (c *connection) use(ask func(offrampv1.FleetServiceClient) error) error {
	conn, err := c.dial(viewer)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return ask(offrampv1.NewFleetServiceClient(conn))
}

// decide makes one call as somebody who may decide about findings.
func (c *connection) decide(ctx context.Context, call func(context.Context, offrampv1.FleetServiceClient) error) error {
	conn, err := c.dial(operator)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	return call(ctx, offrampv1.NewFleetServiceClient(conn))
}

// order is use for somebody who gives orders.
func (c *connection) order(give func(offrampv1.CleanupServiceClient) error) error {
	conn, err := c.dial(operator, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxOrderResult)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return give(offrampv1.NewCleanupServiceClient(conn))
}

// dial opens the connection as a ServiceAccount.
func (c *connection) dial(account string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	options, err := c.identify(account)
	if err != nil {
		return nil, err
	}
	options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}))
	if c.aggregator != "" {
		// One that cannot be reached is not waited for longer than one that can takes.
		options = append(options, grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}))
	}
	options = append(options, more...)
	// passthrough, so that the error of a failed look-up or dial comes back as it is.
	conn, err := grpc.NewClient("passthrough:///"+cmp.Or(c.aggregator, "port-forward"), options...)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to %s: %w", c.place(), err)
	}
	return conn, nil
}

// place says where the aggregator is.
func (c *connection) place() string {
	return cmp.Or(c.aggregator, "the end of the API server's port-forward")
}

// identify says who we are and whom we trust: by files where some were named, and else as the cluster says.
func (c *connection) identify(account string) ([]grpc.DialOption, error) {
	if !c.asksCluster() {
		creds, err := c.tls.Credentials()
		if err != nil {
			return nil, err
		}
		options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
		if c.tokenFile != "" {
			options = append(options, grpc.WithPerRPCCredentials(bearer.New(c.tokenFile)))
		}
		return options, nil
	}
	ours, err := cluster.Open(c.cluster, account)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{grpc.WithPerRPCCredentials(ours.PerCall())}
	if c.aggregator == "" {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ours.Dial(ctx) }))
	}
	if c.tls.CAFile == "" {
		return append(options, grpc.WithTransportCredentials(ours.Transport(c.tls.ServerName))), nil
	}
	creds, err := c.tls.Credentials()
	return append(options, grpc.WithTransportCredentials(creds)), err
}

// asksCluster tells whether a kubeconfig says who we are. One that nobody named is left alone where files say it.
func (c *connection) asksCluster() bool {
	byFiles := c.tls.InsecurePlaintext || c.tls.CAFile != "" || c.tls.CertFile != "" || c.tokenFile != ""
	return c.cluster.Named() || !byFiles && cluster.Exists()
}

func (c *connection) check() error {
	if err := c.checkAddress(); err != nil {
		return err
	}
	if c.timeout <= 0 {
		return program.Usagef("--timeout must be longer than nothing, not %s", c.timeout)
	}
	if err := c.tls.Check(); err != nil {
		return program.UsageError{Err: err}
	}
	switch {
	case c.cluster.Named() && (c.tls.InsecurePlaintext || c.tls.CertFile != "" || c.tokenFile != ""):
		return program.Usagef("who are you? A cluster (--kubeconfig, --context, --as) cannot go with --token-file, --cert-file or --insecure-plaintext")
	case c.tls.InsecurePlaintext && c.tokenFile != "":
		return program.Usagef("--token-file would be sent in the clear: it cannot go with --insecure-plaintext")
	}
	return nil
}

// checkAddress lets a kubeconfig stand in for an address.
func (c *connection) checkAddress() error {
	if c.aggregator == "" && c.asksCluster() {
		return nil
	}
	if c.aggregator == "" {
		return program.Usagef("which aggregator? Name it with --aggregator host:port or OFFRAMP_AGGREGATOR, or a cluster with --kubeconfig or --context")
	}
	if host, port, err := net.SplitHostPort(c.aggregator); err != nil || host == "" || port == "" {
		return program.Usagef("--aggregator wants host:port, not %q", c.aggregator)
	}
	return nil
}

// deadline bounds one call.
func (c *connection) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}
