package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func applyCommand(conn *connection) *cobra.Command {
	c := newCleaning(conn)
	cmd := &cobra.Command{
		Use:   "apply NODE",
		Short: "Have a node do a plan, or refuse",
		Long: `Have a node do the plan that --plan names by its digest, 12 or more of its
digits. With fewer than all 64 the node is asked for its plan first.
` + cleanupExits,
		Example: `  kubectl-offramp cleanup apply worker-1 --plan 3f2a1c9e0b7d
  kubectl-offramp cleanup apply worker-1 --target iptables --plan 3f2a1c9e0b7d --dry-run`,
		Args: program.OneArg("node name"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.applyNamed(cmd, args[0]) },
	}
	c.addFlags(cmd)
	cmd.Flags().StringVar(&c.digest, "plan", "", "digest of the plan to do")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show the plan that the node has now and do nothing")
	return cmd
}

// minDigits is how many digits of a digest name a plan.
const minDigits = 12

// applyNamed has the plan done that --plan names.
func (c *cleaning) applyNamed(cmd *cobra.Command, node string) error {
	named := strings.ToLower(c.digest)
	if _, err := hex.DecodeString(named + strings.Repeat("0", len(named)%2)); err != nil || len(named) < minDigits || len(named) > 2*sha256.Size {
		return program.Usagef("--plan wants %d to %d hexadecimal digits of a plan's digest, not %q", minDigits, 2*sha256.Size, c.digest)
	}
	if err := c.prepare(cmd); err != nil {
		return err
	}
	if digest, err := hex.DecodeString(named); err == nil && len(digest) == sha256.Size && !c.dryRun {
		return c.apply(cmd, node, c.id, digest, nil)
	}
	if c.id != "" {
		return program.Usagef("--order wants all %d digits of --plan", 2*sha256.Size)
	}
	result, err := c.plan(cmd, node, "")
	if err != nil {
		return err
	}
	plan := result.GetPlan()
	if plan == nil || !strings.HasPrefix(hex.EncodeToString(plan.GetDigest()), named) {
		return c.otherPlan(cmd.OutOrStdout(), result)
	}
	if c.dryRun {
		return c.showPlan(cmd.OutOrStdout(), result, "")
	}
	return c.apply(cmd, node, "", plan.GetDigest(), plan)
}

// otherPlan shows the plan that the node has instead of the one that was named.
func (c *cleaning) otherPlan(w io.Writer, result *offrampv1.OrderResult) error {
	if err := c.showPlan(w, result, ""); result.GetPlan() == nil {
		return err
	}
	if c.output == "text" {
		if _, err := fmt.Fprintf(w, "\nRefused: the plan that was named is not the node's plan now. Nothing was changed.\n"); err != nil {
			return err
		}
	}
	return program.Code(2)
}

// apply has a plan done. plan is nil where only its digest is known.
func (c *cleaning) apply(cmd *cobra.Command, node, id string, digest []byte, plan *offrampv1.Plan) error {
	if id == "" {
		id = newID()
	}
	result, err := c.give(cmd.Context(), &order{
		id: id, doing: fmt.Sprintf("a clean-up of node %q", node),
		again: fmt.Sprintf("kubectl-offramp cleanup apply %s --target %s --plan %x", node, render.Word(c.target), digest),
		call: func(ctx context.Context, client offrampv1.CleanupServiceClient, timeout *durationpb.Duration) (*answers, error) {
			return opened(client.Apply(ctx, &offrampv1.ApplyRequest{
				Node: node, OrderId: id, Target: c.target, PlanDigest: digest, Timeout: timeout,
			}))
		},
	})
	if err != nil {
		return err
	}
	err = printOr(cmd.OutOrStdout(), c.output, result, func(w io.Writer) error { return c.showResult(w, result, plan) })
	if err != nil {
		return err
	}
	return exit(result)
}

func (c *cleaning) showResult(w io.Writer, result *offrampv1.OrderResult, plan *offrampv1.Plan) error {
	if result.GetCleanup() == nil || result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_INTERRUPTED {
		if err := printOutcome(w, result); err != nil || result.GetCleanup() == nil {
			return err
		}
	}
	done := result.GetCleanup()
	switch applied := result.GetPlan(); {
	case applied != nil && bytes.Equal(applied.GetDigest(), done.GetPlanDigest()):
		plan = applied
	case plan == nil:
		plan = &offrampv1.Plan{Target: c.target}
	}
	return render.Result(w, plan, done)
}
