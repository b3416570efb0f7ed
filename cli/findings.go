package main

import (
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func findingsCommand(conn *connection) *cobra.Command {
	request := &offrampv1.GetReadinessRequest{Target: offrampv1.Target_TARGET_NFTABLES}
	var output view
	cmd := &cobra.Command{
		Use:   "findings",
		Short: "List every finding of the fleet, with the number of nodes",
		Long: `List every finding about the cluster and about nodes, the worst first: on how
many nodes, on how many of them it is undecided (something could not be read)
and on how many somebody accepted it. Accepted findings stay in the list. "-o
wide" adds names, evidence and what to do; "explain ID" says more.`,
		Example: `  kubectl-offramp findings
  kubectl-offramp findings --target iptables -o wide
  kubectl-offramp findings -o csv | cut -d, -f1,4`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := conn.readiness(cmd.Context(), request)
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), fleet, func(w io.Writer) error {
				if output.word == "csv" {
					return render.FindingsCSV(w, fleet)
				}
				return render.Findings(w, fleet, output.wide())
			})
		},
	}
	settings.TargetFlag(cmd, &request.Target)
	selectorFlag(cmd, &request.Selector)
	output.addFlag(cmd, "text", "wide", "json", "yaml", "csv", pathWord)
	return cmd
}

func nextCommand(conn *connection) *cobra.Command {
	request := &offrampv1.GetReadinessRequest{Target: offrampv1.Target_TARGET_NFTABLES}
	var output view
	cmd := &cobra.Command{
		Use:   "next",
		Short: "List what to do next, in order, with the commands",
		Long: `List what is left to do to bring the fleet to the target, in order: why, on
which nodes, and the exact commands. A step that waits comes after the ones
before it are done. Nothing is done by this command.`,
		Example: `  kubectl-offramp next
  kubectl-offramp next --target iptables -l pool=web
  kubectl-offramp next -o jsonpath='{.steps[0].commands[*]}'`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := conn.readiness(cmd.Context(), request)
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), fleet, func(w io.Writer) error { return render.Steps(w, fleet) })
		},
	}
	settings.TargetFlag(cmd, &request.Target)
	selectorFlag(cmd, &request.Selector)
	output.addFlag(cmd, "text", "json", "yaml", pathWord)
	return cmd
}
