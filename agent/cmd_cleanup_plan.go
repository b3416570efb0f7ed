package main

import (
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
)

func planCommand(c *options) *cobra.Command {
	clean := newCleaning(c)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print exactly what a clean-up would do, and change nothing",
		Long: `Read this node and print what a clean-up for the target would do: every operation
in its order, what is kept and why, and what stands in the way. Nothing on the
node is changed. The digest names the plan; two readings of a node that has not
changed give the same one.

Targets: nftables, iptables and ipvs want kube-proxy to run in that mode and to
have written all its rules; none wants it to be gone for good.

Exit codes, the first that applies:
  1  error: the call was wrong, or nothing could be read
  2  refused: a guard stands in the way
  4  could not tell: something that matters could not be read
  3  there is something to do
  0  nothing to do`,
		Example: `  offramp-agent cleanup plan --target nftables
  offramp-agent cleanup plan --target none --assert-no-kube-proxy "Cilium replaced it"
  offramp-agent cleanup plan -o json > plan.json; echo "exit code $?"`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return clean.plan(cmd) },
	}
	clean.addFlags(cmd)
	return cmd
}

func (c *cleaning) plan(cmd *cobra.Command) error {
	planner, err := c.planner()
	if err != nil {
		return err
	}
	plan, err := planner.Preview(cmd.Context(), c.executor(c.host, c.stateDir))
	if err != nil {
		return err
	}
	text := func(w io.Writer) error { return render.Plan(w, plan) }
	if err := c.print(cmd.OutOrStdout(), plan, text); err != nil {
		return err
	}
	return program.Code(cleanup.PlanExit(plan))
}
