package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func statusCommand(conn *connection) *cobra.Command {
	target, output := offrampv1.Target_TARGET_NFTABLES, ""
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Sum up the fleet: how many nodes are ready, what is in the way, what is left",
		Long: `Sum up the fleet for one target: how many nodes could go there, are blocked or
could not be judged; in which phase they are; what kube-proxy left behind; and
each finding with the nodes it is on and what to do about it.

The exit code is 0 whatever the answer is; "ready" is for scripts.`,
		Example: `  kubectl-offramp status
  kubectl-offramp status --target none
  kubectl-offramp status -o json | jq -r '.findings[].id'`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := conn.readiness(cmd.Context(), target)
			if err != nil {
				return err
			}
			return printOr(cmd.OutOrStdout(), output, fleet, func(w io.Writer) error { return render.Readiness(w, fleet) })
		},
	}
	settings.TargetFlag(cmd, &target)
	settings.OutputFlag(cmd, &output, "text", "json", "yaml")
	return cmd
}

// readiness asks for the fleet's summary.
func (c *connection) readiness(ctx context.Context, target offrampv1.Target) (*offrampv1.GetReadinessResponse, error) {
	var fleet *offrampv1.GetReadinessResponse
	err := c.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := c.deadline(ctx)
		defer cancel()
		var err error
		fleet, err = client.GetReadiness(ctx, &offrampv1.GetReadinessRequest{Target: target})
		return c.explain("asking for the fleet's readiness", err)
	})
	return fleet, err
}

// printOr writes message as the document that output names, or else lets text write.
func printOr(w io.Writer, output string, message proto.Message, text func(io.Writer) error) error {
	switch output {
	case "json":
		return render.JSON(w, message)
	case "yaml":
		return render.YAML(w, message)
	}
	return text(w)
}
