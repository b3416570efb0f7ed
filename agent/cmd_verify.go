package main

import (
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
)

func verifyCommand(c *options) *cobra.Command {
	l := newLook(c)
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

Where no kube-proxy can be proven to be gone, --assert-no-kube-proxy lets you say
so, with a reason. It is never believed over a kube-proxy that is seen.`,
		Example: `  offramp-agent verify --target nftables
  offramp-agent verify --target none --assert-no-kube-proxy "Cilium replaced it"
  offramp-agent verify -o json; echo "exit code $?"`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.verify(cmd) },
	}
	l.addFlags(cmd)
	return cmd
}

func (l *look) verify(cmd *cobra.Command) error {
	facts, assessment, err := l.read(cmd.Context())
	if err != nil {
		return err
	}
	text := func(w io.Writer) error { return render.Verify(w, facts.GetNode(), assessment) }
	if err := l.print(cmd.OutOrStdout(), summary(facts, assessment), text); err != nil {
		return err
	}
	return program.Code(l.exitCode(assessment.GetVerify(), assessment.GetLeftovers()))
}
