package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"offramp.dev/offramp/aggregator/auth"
	"offramp.dev/offramp/aggregator/auth/apiserver"
	"offramp.dev/offramp/aggregator/authority"
	"offramp.dev/offramp/aggregator/serve"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/settings"
)

// The ways of finding out who calls.
const (
	byKubernetes = "kubernetes"
	byMTLS       = "mtls"
	byNothing    = "none"
)

// prepareLimit is how long the API server may take at the start until it answers.
const prepareLimit = time.Minute

// identity are the flags that say who may call, and what the aggregator shows of itself.
type identity struct {
	auth, kubeconfig                  string
	audience, namespace, agentAccount string
	issuers                           []string
	reviewRate                        float64
	reviewEvery                       time.Duration
	names                             []string
	secret, configMap                 string
	inCluster                         func() bool
}

func (i *identity) addFlags(flags *pflag.FlagSet) {
	i.inCluster = func() bool { _, err := rest.InClusterConfig(); return !errors.Is(err, rest.ErrNotInCluster) }
	flags.Var(settings.Choice(&i.auth, "", byKubernetes, byMTLS, byNothing), "auth",
		"who calls is told by: kubernetes (ServiceAccount tokens), mtls (client certificates alone), none (nobody is asked, everybody may do everything); default: kubernetes in a cluster or with --kubeconfig, mtls with --client-ca-file")
	flags.StringVar(&i.kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: the cluster that this pod runs in)")
	flags.StringVar(&i.audience, "audience", "offramp", "audience that tokens must be for")
	flags.StringVar(&i.namespace, "namespace", "offramp", "Offramp's namespace: of its ServiceAccounts, its Secret and its ConfigMap")
	flags.StringVar(&i.agentAccount, "agent-account", "offramp-agent", "ServiceAccount of the agents")
	flags.StringSliceVar(&i.issuers, "token-issuer", nil, "issuer to accept beside the one that the cluster publishes; may be repeated")
	flags.Float64Var(&i.reviewRate, "token-reviews-per-second", 20, "at most how many of agents' tokens are reviewed by the API server in a second")
	flags.DurationVar(&i.reviewEvery, "token-review-interval", 2*time.Minute, "how often the token of a connected agent is reviewed again, where the rate allows")
	flags.StringSliceVar(&i.names, "tls-names", nil, "names and addresses in the certificate that the aggregator makes for itself (default: offramp-aggregator, with the namespace and .svc, and localhost)")
	flags.StringVar(&i.secret, "authority-secret", "offramp-authority", "Secret in which replicas share the certificate authority that they make")
	flags.StringVar(&i.configMap, "authority-configmap", "offramp-authority", "ConfigMap in which they publish its certificates, under ca.crt")
}

// mode settles how callers are told apart. Nobody gets "none" without asking for it.
func (i *identity) mode(clientCA string) string {
	switch {
	case i.auth != "":
		return i.auth
	case i.kubeconfig != "" || i.inCluster():
		return byKubernetes
	case clientCA != "":
		return byMTLS
	default:
		return ""
	}
}

// check finds settings that contradict each other.
func (s *runSettings) checkIdentity() error {
	mode := s.identity.mode(s.tls.ClientCA)
	switch {
	case mode == "":
		return program.Usagef("who may call? Outside Kubernetes name the CA of the clients' certificates with --client-ca-file, or the cluster with --kubeconfig; --auth none asks nobody")
	case mode == byMTLS && s.tls.ClientCA == "":
		return program.Usagef("--auth mtls needs --client-ca-file")
	case mode != byNothing && s.plaintext:
		return program.Usagef("--insecure-plaintext would send tokens in the clear: it goes with --auth none alone")
	case mode == byNothing && s.identity.kubeconfig != "":
		return program.Usagef("--auth none asks no API server: it cannot go with --kubeconfig")
	default:
		return nil
	}
}

// identified is what the flags of identity come to.
type identified struct {
	guard *auth.Guard
	tls   *tls.Config
	// authorityExpiry is when the certificate authority that the aggregator made expires; nil where it made none.
	authorityExpiry func() time.Time
	// client reaches the API server; nil where none is asked.
	client kubernetes.Interface
	// run are to run for as long as the server does.
	run []func(context.Context)
}

// identify builds who decides about callers, and what the server shows of itself.
func (s *runSettings) identify(ctx context.Context, log *slog.Logger) (*identified, error) {
	switch s.identity.mode(s.tls.ClientCA) {
	case byNothing:
		log.Warn("nobody is asked who they are: everybody who reaches this port may report, read and order (--auth none)")
		transport, err := s.transport(log)
		return &identified{guard: auth.New(nil, log), tls: transport}, err
	case byMTLS:
		transport, err := s.transport(log)
		return &identified{guard: auth.New(auth.Certificates{}, log), tls: transport}, err
	default:
		return s.identifyByKubernetes(ctx, log)
	}
}

func (s *runSettings) identifyByKubernetes(ctx context.Context, log *slog.Logger) (*identified, error) {
	api, err := apiserver.Connect(s.identity.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the Kubernetes API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, prepareLimit)
	defer cancel()
	tokens := auth.NewTokens(s.identity.tokens(api, log))
	if err := insist(ctx, log, tokens.Prepare); err != nil {
		return nil, err
	}
	client, err := apiserver.Client(s.identity.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the Kubernetes API server: %w", err)
	}
	made := &identified{client: client, run: []func(context.Context){tokens.Run}}
	made.guard = auth.New(auth.Either{Tokens: tokens, Certificates: auth.Certificates{}}, log)
	s.tls.ClientCertOptional = true
	if s.tls.Cert != "" {
		made.tls, err = s.transport(log)
		return made, err
	}
	own := authority.New(authority.Config{
		Store: apiserver.Shared{API: api, Namespace: s.identity.namespace, Secret: s.identity.secret, ConfigMap: s.identity.configMap},
		Names: s.identity.serverNames(), Log: log,
	})
	if err := insist(ctx, log, own.Refresh); err != nil {
		return nil, err
	}
	made.run = append(made.run, own.Run)
	made.authorityExpiry = func() time.Time { at, _ := own.Expiry(); return at }
	made.tls, err = serve.TLSConfigWith(own.Certificate, s.tls, log)
	return made, err
}

func (i *identity) tokens(api auth.API, log *slog.Logger) auth.TokensConfig {
	return auth.TokensConfig{
		API: api, Audience: i.audience, Namespace: i.namespace, AgentAccount: i.agentAccount, Issuers: i.issuers,
		ReviewsPerSecond: i.reviewRate, ReviewEvery: i.reviewEvery, Log: log,
	}
}

// serverNames are what the aggregator is reached by: the Service's names, and a forwarded port of this machine.
func (i *identity) serverNames() []string {
	if len(i.names) > 0 {
		return i.names
	}
	service := "offramp-aggregator"
	names := []string{service, service + "." + i.namespace, service + "." + i.namespace + ".svc", "localhost", "127.0.0.1", "::1"}
	if ip := os.Getenv("POD_IP"); ip != "" && !strings.ContainsAny(ip, " ,") {
		names = append(names, ip)
	}
	return names
}

// insist tries again every other second until it works or ctx ends: an aggregator may start before its API server.
func insist(ctx context.Context, log *slog.Logger, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		log.Warn("not ready to start yet", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(2 * time.Second):
		}
	}
}
