package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// selectorFlag adds -l, --selector.
func selectorFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "selector", "l", "", "only nodes whose labels match, such as pool=web,zone!=b")
}

func statusCommand(conn *connection) *cobra.Command {
	request := &offrampv1.GetReadinessRequest{Target: offrampv1.Target_TARGET_NFTABLES}
	var output view
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Sum up the fleet: how many nodes are ready, what is in the way, what is left",
		Long: `Sum up the fleet for one target: the verdict; how many nodes could go there, are
blocked or could not be judged; in which phase they are; pool by pool; what
kube-proxy left behind; who did not report and what could not be read; findings
about the cluster and the worst ones on nodes; and the next step.

The exit code is 0 whatever the answer is; "ready" is for scripts.`,
		Example: `  kubectl-offramp status
  kubectl-offramp status --target none -l pool=web
  kubectl-offramp status -o json | jq -r '.findings[].id'
  kubectl-offramp status -o jsonpath='{.ready} of {.nodes}'`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := conn.readiness(cmd.Context(), request)
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), fleet, func(w io.Writer) error { return render.Readiness(w, fleet) })
		},
	}
	settings.TargetFlag(cmd, &request.Target)
	selectorFlag(cmd, &request.Selector)
	output.addFlag(cmd, "text", "json", "yaml", pathWord)
	return cmd
}

// readiness asks for the summary of the fleet, or of a part of it.
func (c *connection) readiness(ctx context.Context, request *offrampv1.GetReadinessRequest) (*offrampv1.GetReadinessResponse, error) {
	var fleet *offrampv1.GetReadinessResponse
	err := c.use(func(client offrampv1.FleetServiceClient) error {
		var err error
		fleet, err = c.askReadiness(ctx, client, request)
		return err
	})
	return fleet, err
}

// askReadiness refuses an answer to another question than was asked.
func (c *connection) askReadiness(ctx context.Context, client offrampv1.FleetServiceClient, request *offrampv1.GetReadinessRequest) (*offrampv1.GetReadinessResponse, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	fleet, err := client.GetReadiness(ctx, request)
	switch {
	case err != nil:
		return nil, c.explain("asking for the fleet's readiness", err)
	case fleet.GetTarget() != request.GetTarget():
		return nil, fmt.Errorf("the aggregator answered for target %s; --target was %s", render.Word(fleet.GetTarget()), render.Word(request.GetTarget()))
	case request.GetForVersion() != "" && fleet.GetUpgrade() == nil:
		return nil, fmt.Errorf("the aggregator said nothing about Kubernetes %s; it may be an older version", request.GetForVersion())
	}
	return fleet, nil
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
