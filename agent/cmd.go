package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/agent/probe"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/settings"
	"offramp.dev/offramp/internal/version"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// parts are what the commands put together. Tests bring their own.
type parts struct {
	scan     func(context.Context, collect.Config) *offrampv1.NodeFacts
	assess   func(*offrampv1.NodeFacts, offrampv1.Target) *offrampv1.Assessment
	exitCode func(offrampv1.Verdict, *offrampv1.Leftovers) int
	report   func(context.Context, reporting) error
	// recall returns ipvs.excludeCIDRs as the agent that keeps its memory in a state folder last saw it.
	recall   func(stateDir string) ([]string, error)
	exact    func(context.Context, collect.Config) (*offrampv1.NodeFacts, *inventory.Node)
	executor func(collect.Host, string) executor
	hostname func() (string, error)
	// services lists the Services whose connections are tried, as the kernel tells of them.
	services func(context.Context, collect.Config) ([]inventory.Service, error)
	prober   *probe.Prober
	// audit is the log of a state folder.
	audit func(stateDir string) audit.Keeper
	// caller says who runs this program.
	caller func() string
}

// executor does clean-ups on this node, and undoes them.
type executor interface {
	cleanup.Executor
	Restore(ctx context.Context, request cleanup.RestoreRequest) (*cleanup.RestoreResult, error)
}

// options are the settings of every command.
type options struct {
	parts
	node       string
	assertNone string
	host       collect.Host
	kubeProxy  collect.KubeProxyAddresses
	logFormat  string
	logLevel   string
}

func newRoot(with parts) *cobra.Command {
	c := &options{parts: with, host: collect.DefaultHost(), logFormat: "text", logLevel: "info"}
	root := &cobra.Command{
		Use:   "offramp-agent",
		Short: "Read what kube-proxy left in this node's kernel, and report or judge it",
		Long: `offramp-agent reads what the kernel of this node really holds (IPVS, kube-ipvs0,
ipsets, iptables of both backends, nftables, sysctls) and what kube-proxy says of
itself. Reading changes nothing: no module is loaded, no table is created, no
program is run.

"inspect" and "verify" work on any Linux node by themselves; "run" reports to an
offramp-aggregator. Run it as root, or part of the node cannot be read. Every flag
can be set by a variable: OFFRAMP_ and the flag's name in capitals; flags win.`,
		Example: `  offramp-agent inspect
  offramp-agent verify --target nftables; echo "exit code $?"
  offramp-agent run --aggregator offramp-aggregator:8443 --ca-file ca.pem`,
		RunE: program.Group,
	}
	c.addFlags(root)
	root.AddCommand(inspectCommand(c), verifyCommand(c), cleanupCommand(c), runCommand(c), versionCommand())
	return root
}

func (c *options) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.node, "node", "", "Kubernetes name of this node (default: the host name)")
	flags.StringVar(&c.assertNone, "assert-no-kube-proxy", "",
		"why you are sure that no kube-proxy runs here; recorded, and never believed over a kube-proxy that is seen")
	flags.StringVar(&c.host.Proc, "proc-root", c.host.Proc, "where the host's proc file system is mounted")
	flags.StringVar(&c.host.Sys, "sys-root", c.host.Sys, "where the host's sysfs is mounted")
	flags.StringVar(&c.host.Root, "host-root", c.host.Root, "where the host's root file system is mounted")
	flags.StringSliceVar(&c.kubeProxy.Metrics, "kube-proxy-metrics", nil,
		"where kube-proxy serves its metrics and mode, address:port, if it cannot be told by itself")
	flags.StringSliceVar(&c.kubeProxy.Healthz, "kube-proxy-healthz", nil,
		"where kube-proxy serves its health, address:port, if it cannot be told by itself")
	flags.Var(settings.Choice(&c.logFormat, "text", "json"), "log-format", "format of the log on standard error: text, json")
	flags.Var(settings.Choice(&c.logLevel, "debug", "info", "warn", "error"), "log-level", "least level to log: debug, info, warn, error")
	// Pods are told their node's name in NODE_NAME by custom. The flag was added above, so this cannot fail.
	_ = settings.Also(flags, "node", "NODE_NAME")
}

// config is what a reading needs to know.
func (c *options) config() (collect.Config, error) {
	node, err := c.nodeName()
	if err != nil {
		return collect.Config{}, err
	}
	return collect.Config{Host: c.host, Node: node, AgentVersion: version.Get().Version, AssertNone: c.assertNone, KubeProxy: c.kubeProxy}, nil
}

// nodeName falls back to the host name in lower case, as kubelet does.
func (c *options) nodeName() (string, error) {
	if c.node != "" {
		return c.node, nil
	}
	name, err := c.hostname()
	if err != nil {
		return "", fmt.Errorf("asking for the host name, as --node was not given: %w", err)
	}
	return strings.ToLower(name), nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print version, commit, date and compiler of this program.",
		Example: "  offramp-agent version",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "offramp-agent", version.Get())
			return err
		},
	}
}
