package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func leftoversCommand(conn *connection) *cobra.Command {
	target, selector := offrampv1.Target_TARGET_NFTABLES, ""
	var output view
	cmd := &cobra.Command{
		Use:   "leftovers",
		Short: "List the nodes on which kube-proxy left something, and what",
		Long: `List the nodes on which something is left that kube-proxy made and that its
running mode does not use: virtual servers, the link kube-ipvs0 and its
addresses, ipsets, chains, jumps to them, nftables tables. "?" under MORE means
that it could not all be told.

Exit codes, the first that applies:
  1  error
  4  could not tell: on some nodes it is not known what is left, or nodes are
     silent or never reported, or none has
  3  some nodes have leftovers
  0  none has`,
		Example: `  kubectl-offramp leftovers
  kubectl-offramp leftovers -l pool=web -o csv > leftovers.csv
  kubectl-offramp leftovers -o name | xargs -n1 kubectl-offramp cleanup plan`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, fleet, err := conn.leftovers(cmd.Context(), target, selector, newProgress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), nodes, leftoversText(&output, nodes.GetNodes(), fleet)); err != nil {
				return err
			}
			return program.Code(leftoversCode(fleet))
		},
	}
	settings.TargetFlag(cmd, &target)
	selectorFlag(cmd, &selector)
	output.addFlag(cmd, "text", "json", "yaml", "csv", "name", pathWord)
	return cmd
}

// leftovers asks for the nodes that have some, and for the summary that says about how many it is not known.
func (c *connection) leftovers(ctx context.Context, target offrampv1.Target, selector string, shown *progress) (nodes *offrampv1.ListNodesResponse, fleet *offrampv1.GetReadinessResponse, err error) {
	err = c.use(func(client offrampv1.FleetServiceClient) error {
		if fleet, err = c.askReadiness(ctx, client, &offrampv1.GetReadinessRequest{Target: target, Selector: selector}); err != nil {
			return err
		}
		request := &offrampv1.ListNodesRequest{Target: target, Selector: selector, WithLeftovers: true}
		nodes, err = c.allPages(ctx, client, request, shown)
		return err
	})
	return nodes, fleet, err
}

func leftoversText(output *view, nodes []*offrampv1.NodeSummary, fleet *offrampv1.GetReadinessResponse) func(io.Writer) error {
	return func(w io.Writer) error {
		switch output.word {
		case "csv":
			return render.NodesCSV(w, nodes)
		case "name":
			return render.Names(w, nodes)
		}
		return render.Leftovers(w, nodes, fleet)
	}
}

func leftoversCode(fleet *offrampv1.GetReadinessResponse) int {
	switch {
	case fleet.GetLeftovers().GetUndecided(), fleet.GetLeftovers() == nil, fleet.GetSilent() > 0, fleet.GetNeverSeen() > 0, fleet.GetNodes() == 0,
		fleet.GetIncomplete() != "":
		return exitUnknown
	case fleet.GetWithLeftovers() > 0:
		return exitRemains
	}
	return 0
}
