package main

import (
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/readiness"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func timelineCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "timeline",
		Short: "Say which Kubernetes version does what to ipvs mode",
		Long: `Say which version of Kubernetes does what to ipvs mode, oldest first, and where
that is said. What is planned may still move. The aggregator is not asked: this
is what this version of the program knows. "-o json" has one milestone a line.`,
		Example: `  kubectl-offramp timeline
  kubectl-offramp timeline -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printTimeline(cmd.OutOrStdout(), output, readiness.Timeline())
		},
	}
	settings.OutputFlag(cmd, &output, "text", "json")
	return cmd
}

func printTimeline(w io.Writer, output string, milestones []*offrampv1.Milestone) error {
	if output != "json" {
		return render.Timeline(w, milestones)
	}
	for _, milestone := range milestones {
		if err := render.JSONLine(w, milestone); err != nil {
			return err
		}
	}
	return nil
}
