package main

import (
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/agent/probe"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// verifying is the settings of verify.
type verifying struct {
	*look
	connect    bool
	connecting connecting
}

func verifyCommand(c *options) *cobra.Command {
	v := &verifying{look: newLook(c)}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Tell whether this node is at its target with nothing left, by exit code",
		Long: `Read this node once and tell whether it is at the target: the target's mode runs
(or, for target none, no kube-proxy does) and nothing is left of the modes before.
Nothing on the node is changed, and no aggregator is needed.

Exit codes, the first that applies:
  1  error: the node could not be read at all, or the call was wrong
  2  blocked: the node is not at the target
  4  could not tell: something that matters could not be read
  3  at the target, with leftovers
  0  at the target, clean

With --connect it also makes new connections from the node to the kubernetes
Service and to the cluster's DNS (a question by UDP and by TCP) through their
addresses, as far as the kernel tells of them, and to those of --connect-to. One
that fails while an endpoint of the Service answers directly means "blocked"; one
that cannot be compared, or none to try, means "could not tell". They take two
seconds each at most, and some ten seconds together.

Where no kube-proxy can be proven to be gone, --assert-no-kube-proxy lets you say
so, with a reason. It is never believed over a kube-proxy that is seen.`,
		Example: `  offramp-agent verify --target nftables
  offramp-agent verify --target none --assert-no-kube-proxy "Cilium replaced it"
  offramp-agent verify --connect --connect-to tcp/10.96.0.1:443=192.0.2.1:6443
  offramp-agent verify -o json; echo "exit code $?"`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return v.verify(cmd) },
	}
	v.addFlags(cmd)
	cmd.Flags().BoolVar(&v.connect, "connect", false, "also try connections to Services")
	v.connecting.addFlags(cmd.Flags())
	return cmd
}

func (v *verifying) verify(cmd *cobra.Command) error {
	given, err := v.connecting.targets()
	if err != nil {
		return err
	}
	facts, assessment, err := v.read(cmd.Context())
	if err != nil {
		return err
	}
	var document proto.Message = summary(facts, assessment)
	code := v.exitCode(assessment.GetVerify(), assessment.GetLeftovers())
	var probes []*offrampv1.Probe
	if v.connect {
		if probes, err = v.tryConnections(cmd, given); err != nil {
			return err
		}
		document = &offrampv1.Verification{Node: summary(facts, assessment), Connections: probes}
		code = worse(code, connectionsExit(probes))
	}
	text := func(w io.Writer) error {
		if err := render.Verify(w, facts.GetNode(), assessment); err != nil || !v.connect {
			return err
		}
		return writeProbes(w, probes)
	}
	if err := v.print(cmd.OutOrStdout(), document, text); err != nil {
		return err
	}
	return program.Code(code)
}

func (v *verifying) tryConnections(cmd *cobra.Command, given []probe.Target) ([]*offrampv1.Probe, error) {
	config, err := v.config()
	if err != nil {
		return nil, err
	}
	targets, err := v.targets(cmd.Context(), config, given)
	if err != nil {
		newLog(cmd.ErrOrStderr(), v.logFormat, v.logLevel).Warn("not every Service could be looked up", "error", err)
	}
	return probe.Now(v.prober.Thorough(cmd.Context(), targets)), nil
}

// connectionsExit is the exit code that connections stand for.
func connectionsExit(probes []*offrampv1.Probe) int {
	code := 0
	if len(probes) == 0 {
		code = 4
	}
	for _, one := range probes {
		switch one.GetVerdict() {
		case offrampv1.ProbeVerdict_PROBE_VERDICT_WORKS:
		case offrampv1.ProbeVerdict_PROBE_VERDICT_FAILS:
			code = worse(code, 2)
		default:
			code = worse(code, 4)
		}
	}
	return code
}

// worse is the one of two exit codes that goes first: 1, 2, 4, 3, 0.
func worse(a, b int) int {
	for _, code := range []int{1, 2, 4, 3} {
		if a == code || b == code {
			return code
		}
	}
	return 0
}

func writeProbes(w io.Writer, probes []*offrampv1.Probe) error {
	if len(probes) == 0 {
		return writeLine(w, "Connections: none could be tried; the kernel tells of no kubernetes Service and of no DNS. Name one with --connect-to.")
	}
	if err := writeLine(w, "Connections from this node:"); err != nil {
		return err
	}
	for _, one := range probes {
		if err := writeLine(w, "  - %s", render.Clean(probe.Sentence(one))); err != nil {
			return err
		}
	}
	return nil
}
