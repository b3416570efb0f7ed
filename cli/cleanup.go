package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// cleaning is what the commands of a clean-up share.
type cleaning struct {
	giving
	target offrampv1.Target
	output string
	node   string
	yes    bool
	dryRun bool
	digest string
}

func newCleaning(conn *connection) *cleaning {
	return &cleaning{giving: giving{connection: conn}, target: offrampv1.Target_TARGET_NFTABLES}
}

func (c *cleaning) addFlags(cmd *cobra.Command) {
	c.giving.addFlags(cmd)
	settings.TargetFlag(cmd, &c.target)
	settings.OutputFlag(cmd, &c.output, "text", "json", "yaml")
}

const cleanupExits = `
Exit codes, the first that applies:
  1  error: the call was wrong, or it failed
  2  refused by the node's agent or a guard; nothing was changed
  4  could not tell
  3  applied, but something remains; of a plan: there is something to do
  0  done, or nothing to do`

func cleanupCommand(conn *connection) *cobra.Command {
	c := newCleaning(conn)
	cmd := &cobra.Command{
		Use:   "cleanup NODE",
		Short: "Remove what kube-proxy left on a node, after showing what that is",
		Long: `Have a node plan its clean-up, show the plan, ask, and have the node do that
very plan. The node's agent must be started with --cleanup=apply. It decides by
itself: it reads the node anew, and refuses where the plan has changed or a
guard stands in the way. Guards are overridden on the node alone, not from here.

The node does an order once, however often it is told: when the connection
breaks the order is asked for again. Ctrl-C ends this program, not the order.
` + cleanupExits,
		Example: `  kubectl-offramp cleanup worker-1
  kubectl-offramp cleanup worker-1 --dry-run
  kubectl-offramp cleanup worker-1 --target iptables --yes
  kubectl-offramp cleanup apply worker-1 --plan 3f2a1c9e0b7d`,
		Args: program.OneArg("node name"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.clean(cmd, args[0]) },
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do the plan without asking")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show the plan and do nothing")
	cmd.AddCommand(planCommand(conn), applyCommand(conn), restoreCommand(conn))
	return cmd
}

func planCommand(conn *connection) *cobra.Command {
	c := newCleaning(conn)
	cmd := &cobra.Command{
		Use:   "plan NODE",
		Short: "Show what a clean-up of a node would do",
		Long:  "Have a node plan its clean-up, and show the plan. Nothing is changed there.\n" + cleanupExits,
		Example: `  kubectl-offramp cleanup plan worker-1
  kubectl-offramp cleanup plan worker-1 --target none -o json`,
		Args: program.OneArg("node name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := c.plan(cmd, args[0], c.id)
			if err != nil {
				return err
			}
			return c.showPlan(cmd.OutOrStdout(), result, "kubectl-offramp cleanup apply "+c.node)
		},
	}
	c.addFlags(cmd)
	return cmd
}

// plan has the node plan.
func (c *cleaning) plan(cmd *cobra.Command, node, id string) (*offrampv1.OrderResult, error) {
	c.node = node
	if err := c.prepare(cmd); err != nil {
		return nil, err
	}
	if id == "" {
		id = newID()
	}
	return c.give(cmd.Context(), &order{
		id: id, doing: fmt.Sprintf("a plan for node %q", node),
		again: fmt.Sprintf("kubectl-offramp cleanup plan %s --target %s", node, render.Word(c.target)),
		call: func(ctx context.Context, client offrampv1.CleanupServiceClient, timeout *durationpb.Duration) (*answers, error) {
			return opened(client.Plan(ctx, &offrampv1.PlanRequest{Node: node, OrderId: id, Target: c.target, Timeout: timeout}))
		},
	})
}

// showPlan prints the answer to an order for a plan.
func (c *cleaning) showPlan(w io.Writer, result *offrampv1.OrderResult, next string) error {
	err := printOr(w, c.output, result, func(w io.Writer) error {
		if result.GetPlan() == nil {
			return printOutcome(w, result)
		}
		return render.PlanThen(w, result.GetPlan(), next)
	})
	if err != nil {
		return err
	}
	return exit(result)
}

// printOutcome says how an order ended, in one line.
func printOutcome(w io.Writer, result *offrampv1.OrderResult) error {
	_, err := fmt.Fprintf(w, "Node %s: %s: %s\n", render.Clean(result.GetNode()), render.Word(result.GetOutcome()), render.Clean(result.GetMessage()))
	return err
}

// clean shows the plan, asks, and has it done.
func (c *cleaning) clean(cmd *cobra.Command, node string) error {
	switch {
	case c.id != "":
		return program.Usagef("--order goes with \"cleanup plan\", \"cleanup apply\" and \"cleanup restore\"")
	case !c.yes && !c.dryRun && (!isTerminal(cmd.InOrStdin()) || c.output != "text"):
		return program.Usagef("nobody is there to ask: say --yes or --dry-run, or use \"cleanup plan\" and \"cleanup apply --plan\"")
	}
	result, err := c.plan(cmd, node, "")
	if err != nil {
		return err
	}
	if c.dryRun || c.output == "text" {
		if err := c.showPlan(cmd.OutOrStdout(), result, ""); c.dryRun || stands(result, err) {
			return err
		}
	}
	if plan := result.GetPlan(); plan == nil || len(plan.GetOperations()) == 0 {
		return c.showPlan(cmd.OutOrStdout(), result, "")
	}
	if !c.yes && !confirmed(cmd, node) {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing was changed.")
		if err == nil {
			err = program.Code(exitRemains)
		}
		return err
	}
	return c.apply(cmd, node, newID(), result.GetPlan().GetDigest(), result.GetPlan())
}

// stands reports whether a plan is as far as it goes: there is nothing to do, or something stands in the way.
func stands(result *offrampv1.OrderResult, err error) bool {
	return err == nil || result.GetExitCode() != exitRemains || result.GetPlan() == nil
}

// confirmed asks; anything but yes is no.
func confirmed(cmd *cobra.Command, node string) bool {
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "\nDo this on node %s? [y/N] ", node)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	default:
		return false
	}
}
