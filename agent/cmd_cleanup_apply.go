package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// applying is the settings of apply.
type applying struct {
	*cleaning
	digest      string
	yes         bool
	noConnect   bool
	connecting  connecting
	metricsFile string
}

func applyCommand(c *options) *cobra.Command {
	a := &applying{cleaning: newCleaning(c)}
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Do a plan on this node, or refuse",
		Long: `Read this node again, and do the plan that --plan names by its digest (12 or more
of its digits, as "plan" prints it). Where the plan would no longer be the same,
or a guard stands in the way, nothing is changed. --yes plans, prints and applies
in one go; give it the same flags as "plan".

Everything that goes is saved in --state-dir first, and every step is written to
the journal there. Afterwards the node is read again: what counts is what is
there, not what was done.

Before the first change and after the last, new connections are made to the
kubernetes Service and to the cluster's DNS through their addresses, as far as the
kernel tells of them, and to those of --connect-to. Where one worked before and
fails now although an endpoint answers directly, what may be restored is restored
and the exit code is 1. One that failed before is no reason for anything.
--no-connect leaves all this out.

Each apply writes one line to audit.log in --state-dir and to the log.

Exit codes, the first that applies:
  1  error: the call was wrong, or it failed; see "journal"
  2  refused: a guard stands in the way, or the node has changed; nothing was changed
  4  could not tell
  3  applied, but something remains
  0  done, or nothing to do`,
		Example: `  offramp-agent cleanup apply --target nftables --plan 3f2a1c9e0b7d
  offramp-agent cleanup apply --target nftables --yes --wait-drained 5m
  offramp-agent cleanup apply --target iptables --yes --override boot-file="goes with the next image"`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.apply(cmd) },
	}
	a.addFlags(cmd)
	cmd.Flags().StringVar(&a.digest, "plan", "", "digest of the plan to do")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do whatever the plan is, without having seen it")
	cmd.Flags().BoolVar(&a.noConnect, "no-connect", false, "try no connections before and after")
	cmd.Flags().StringVar(&a.metricsFile, "metrics-file", "",
		"write metrics of this node's clean-ups to this file, for node_exporter's textfile collector")
	a.connecting.addFlags(cmd.Flags())
	return cmd
}

func (a *applying) apply(cmd *cobra.Command) error {
	planner, err := a.checked()
	if err != nil {
		return err
	}
	executor, err := a.noted(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	began := a.now()
	plan, err := planner.Preview(cmd.Context(), executor)
	if err != nil {
		return err
	}
	if a.yes && a.output == "text" {
		if err := render.Plan(cmd.OutOrStdout(), plan); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	result, err := a.do(cmd, planner, executor, plan, began)
	if a.metricsFile != "" {
		err = errors.Join(err, metricsFile(a.metricsFile, executor.Log))
	}
	if err != nil {
		return err
	}
	text := func(w io.Writer) error { return render.Result(w, plan, result) }
	if err := a.print(cmd.OutOrStdout(), result, text); err != nil {
		return err
	}
	return program.Code(cleanup.ResultExit(result))
}

// checked wants either --plan or --yes.
func (a *applying) checked() (*cleanup.Planner, error) {
	switch {
	case a.digest == "" && !a.yes:
		return nil, program.Usagef(`which plan? Name it with --plan DIGEST, as "cleanup plan" prints it, or say --yes`)
	case a.digest != "" && a.yes:
		return nil, program.Usagef("--plan names one plan and --yes takes any: give one of them")
	case a.digest != "":
		if err := cleanup.CheckDigest(a.digest); err != nil {
			return nil, program.Usagef("--plan: %w", err)
		}
	}
	return a.planner()
}

// noted is the executor, with what surrounds it.
func (a *applying) noted(stderr io.Writer) (*audit.Executor, error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	given, err := a.connecting.targets()
	if err != nil {
		return nil, err
	}
	return a.parts.noted(a.executor(a.host, a.stateDir), noting{
		config: config, stateDir: a.stateDir, connect: !a.noConnect, given: given, log: newLog(stderr, a.logFormat, a.logLevel),
	}), nil
}

// do hands the plan to the executor, unless there is nothing to do or it is refused already.
func (a *applying) do(
	cmd *cobra.Command, planner *cleanup.Planner, executor *audit.Executor, plan *offrampv1.Plan, began time.Time,
) (*offrampv1.CleanupResult, error) {
	result := &offrampv1.CleanupResult{Node: plan.GetNode(), PlanDigest: plan.GetDigest()}
	if a.digest != "" && !cleanup.MatchesDigest(plan, a.digest) {
		result.RefusedBy = []*offrampv1.GuardFinding{
			cleanup.Finding(cleanup.GuardPlanChanged, "asked for "+a.digest, fmt.Sprintf("the plan is now %x", plan.GetDigest())),
		}
		executor.Note(plan, result, cleanup.Origin{}, began)
		return result, nil
	}
	result.RefusedBy = cleanup.Blocking(plan)
	if len(result.GetRefusedBy()) > 0 || len(plan.GetOperations()) == 0 {
		executor.Note(plan, result, cleanup.Origin{}, began)
		return result, nil
	}
	return executor.Apply(cmd.Context(), cleanup.Request{Digest: plan.GetDigest(), Plan: planner.Plan, Draining: a.draining})
}
