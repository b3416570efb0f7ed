package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/serve"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/settings"
	"offramp.dev/offramp/internal/version"
)

// runSettings are the flags of run.
type runSettings struct {
	listen              string
	tls                 serve.Files
	plaintext           bool
	identity            identity
	cluster             clusterFlags
	publishing          publishFlags
	perAddress          int
	heartbeat           time.Duration
	silentAfter         int
	forgetAfter         time.Duration
	drain               time.Duration
	auditLog            string
	metrics             string
	logFormat, logLevel string
}

func newRun() *cobra.Command {
	s := &runSettings{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Listen to agents and answer people until SIGTERM or SIGINT",
		Long: `run serves agents and people on one port over TLS 1.3. The files of --tls-cert-file, --tls-key-file and
--client-ca-file are read again when they change. In a cluster, without such files, the aggregator makes a certificate
authority, shares it with its replicas in a Secret and publishes it in a ConfigMap. Without TLS anybody on the way can
read and forge; that needs --insecure-plaintext.

Agents and people prove who they are: in a cluster by ServiceAccount tokens for the audience --audience, elsewhere by
client certificates: of nodes with the common name "system:node:NAME" and the organization "system:nodes", as kubelets
have them; of people with the organization "offramp:viewers" or "offramp:operators". --auth none asks nobody.

At SIGTERM or SIGINT it says NOT_SERVING in its health, ends the agents' streams, which reconnect by themselves, and exits.`,
		Example: `  offramp-aggregator run --tls-cert-file server.crt --tls-key-file server.key --client-ca-file nodes-ca.crt
  offramp-aggregator run --listen 127.0.0.1:8443 --insecure-plaintext --auth none --log-format json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.addFlags(cmd)
	return cmd
}

func (s *runSettings) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.listen, "listen", ":8443", "address to listen on, host:port; port 0 takes a free one and logs it")
	flags.StringVar(&s.tls.Cert, "tls-cert-file", "", "PEM file with the server's certificate chain")
	flags.StringVar(&s.tls.Key, "tls-key-file", "", "PEM file with the certificate's key")
	flags.StringVar(&s.tls.ClientCA, "client-ca-file", "", "PEM file with the CA that signs clients' certificates; with --auth mtls every client needs one")
	flags.BoolVar(&s.plaintext, "insecure-plaintext", false, "serve without TLS: anybody on the way can read and forge")
	flags.IntVar(&s.perAddress, "max-connections-per-address", 1024, "how many connections one address may have open; 0 means any number")
	s.identity.addFlags(flags)
	s.cluster.addFlags(flags)
	s.publishing.addFlags(flags)
	flags.DurationVar(&s.heartbeat, "heartbeat-interval", time.Minute, "how often agents are asked for a sign of life")
	flags.IntVar(&s.silentAfter, "silent-after", 3, "after how many missed heartbeats a node is silent, never counted ready")
	flags.DurationVar(&s.forgetAfter, "forget-after", 24*time.Hour, "for how long a node may be silent before it is forgotten")
	flags.DurationVar(&s.drain, "drain-timeout", 5*time.Second, "how long open calls may take to end at a stop")
	flags.StringVar(&s.auditLog, "audit-log", "", "file to append a line of JSON to for every order and refused call; - for standard output (default: the log)")
	flags.StringVar(&s.metrics, "metrics-listen", "", "where to serve metrics for Prometheus in plaintext, address:port; empty for nowhere")
	flags.Var(settings.Choice(&s.logFormat, "text", "json"), "log-format", "format of the log on standard error: text, json")
	flags.Var(settings.Choice(&s.logLevel, "info", "debug", "warn", "error"), "log-level", "least level to log: debug, info, warn, error")
}

// check finds settings that contradict each other. It touches no file.
func (s *runSettings) check() error {
	switch {
	case s.plaintext && s.tls != (serve.Files{}):
		return program.Usagef("--insecure-plaintext means no TLS: it cannot go with --tls-cert-file, --tls-key-file or --client-ca-file")
	case (s.tls.Cert == "") != (s.tls.Key == ""), !s.plaintext && s.tls.Cert == "" && s.identity.mode(s.tls.ClientCA) != byKubernetes:
		return program.Usagef("TLS needs both --tls-cert-file and --tls-key-file; to serve without TLS pass --insecure-plaintext")
	case s.metrics != "" && !isAddress(s.metrics):
		return program.Usagef("--metrics-listen wants address:port, not %q", s.metrics)
	case s.perAddress < 0:
		return program.Usagef("--max-connections-per-address is 0 or more, not %d", s.perAddress)
	case s.heartbeat < time.Second || s.heartbeat > time.Hour:
		return program.Usagef("--heartbeat-interval is 1s to 1h, not %s", s.heartbeat)
	case s.silentAfter < 1:
		return program.Usagef("--silent-after is 1 or more, not %d", s.silentAfter)
	case s.forgetAfter < time.Duration(s.silentAfter)*s.heartbeat:
		return program.Usagef("--forget-after %s is shorter than it takes a node to be silent", s.forgetAfter)
	case s.drain <= 0:
		return program.Usagef("--drain-timeout must be longer than nothing, not %s", s.drain)
	default:
		return s.checkIdentity()
	}
}

// run wires the parts and waits for the end of ctx.
func (s *runSettings) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := s.check(); err != nil {
		return err
	}
	log := s.logger(stderr)
	collectOften()
	identified, err := s.identify(ctx, log)
	if err != nil {
		return err
	}
	audited, closeAudit, err := openAudit(s.auditLog, stdout, log)
	if err != nil {
		return err
	}
	defer closeAudit()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listen for agents and people: %w", err)
	}
	if s.perAddress > 0 {
		listener = serve.LimitPerAddress(listener, s.perAddress, log)
	}
	//nolint:contextcheck // what it is asked to fetch later brings its own context
	around, err := s.newAround(identified.client, log)
	if err != nil {
		return err
	}
	store := fleet.New(fleet.Config{
		Assess: around.assess, Cluster: around, AsksCluster: around.client != nil, SoakFirst: s.cluster.soakFirst, Soak: s.cluster.soakOther, Log: log,
		HeartbeatInterval: s.heartbeat, SilentAfter: s.silentAfter, ForgetAfter: s.forgetAfter,
	})
	//nolint:contextcheck // each call brings its own context
	server := serve.New(around.serving(serve.Config{
		Store: store, TLS: identified.tls, Guard: identified.guard, Audit: audited, Version: version.Get().Version, Log: log, DrainTimeout: s.drain,
	}))
	around.store, around.server = store, server
	if around.publisher, err = s.publish(around, log); err != nil {
		return err
	}
	log.Info("listening", "address", listener.Addr().String(), "tls", !s.plaintext, "version", version.Get().Version)
	sources := figures(identified, around, audited)
	group, ctx := errgroup.WithContext(ctx)
	// Health is told until the last call has ended, so that whoever asks hears of the draining.
	health, ended := context.WithCancel(context.WithoutCancel(ctx))
	defer ended()
	group.Go(func() error {
		defer ended()
		return server.Serve(ctx, listener)
	})
	group.Go(func() error { return s.serveMetrics(health, sources, around.ready(ctx, identified.tls), log) })
	group.Go(func() error { store.Run(ctx); return nil })
	group.Go(func() error { serve.WarnOfExpiry(ctx, identified.tls, log); return nil })
	for _, run := range identified.run {
		group.Go(func() error { run(ctx); return nil })
	}
	for _, run := range around.runs() {
		group.Go(func() error { return run(ctx) })
	}
	defer log.Info("stopped")
	return group.Wait()
}

func (s *runSettings) transport(log *slog.Logger) (*tls.Config, error) {
	if s.plaintext {
		log.Warn("serving without TLS: anybody on the way can read and forge")
		return nil, nil
	}
	return serve.TLSConfig(s.tls, log)
}

func (s *runSettings) logger(to io.Writer) *slog.Logger {
	var level slog.Level
	// The flag takes the names of slog's levels alone.
	_ = level.UnmarshalText([]byte(s.logLevel))
	options := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
