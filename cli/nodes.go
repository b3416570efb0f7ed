package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func nodesCommand(conn *connection, now func() time.Time) *cobra.Command {
	target, output, follow := offrampv1.Target_TARGET_NFTABLES, "", false
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes, one a line",
		Long: `List every node that has reported, one a line: its kernel, kube-proxy's running
mode, the phase it is in, whether it could go to the target, how many artefacts
of kube-proxy's are left on it, and when it was last heard of.

LEFTOVERS counts virtual servers, the link kube-ipvs0, ipsets, chains, jumps and
nftables tables; "?" means that it could not be told. With --watch, nodes that
change are printed again, until interrupted.`,
		Example: `  kubectl-offramp nodes
  kubectl-offramp nodes -o wide
  kubectl-offramp nodes -o name | xargs -n1 kubectl-offramp node
  kubectl-offramp nodes --watch --target iptables`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow {
				return conn.watch(cmd.Context(), target, newFollower(cmd.OutOrStdout(), output, now))
			}
			return conn.printNodes(cmd.Context(), target, output, cmd.OutOrStdout(), now())
		},
	}
	settings.TargetFlag(cmd, &target)
	settings.OutputFlag(cmd, &output, "text", "wide", "json", "yaml", "name")
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "go on and print every change")
	return cmd
}

func (c *connection) printNodes(ctx context.Context, target offrampv1.Target, output string, w io.Writer, now time.Time) error {
	nodes, err := c.listNodes(ctx, target)
	if err != nil {
		return err
	}
	return printOr(w, output, &offrampv1.ListNodesResponse{Nodes: nodes}, func(w io.Writer) error {
		if output == "name" {
			return render.Names(w, nodes)
		}
		return render.Nodes(w, nodes, output == "wide", now)
	})
}

// listNodes fetches every page. Each page has a deadline of its own.
func (c *connection) listNodes(ctx context.Context, target offrampv1.Target) ([]*offrampv1.NodeSummary, error) {
	var nodes []*offrampv1.NodeSummary
	err := c.use(func(client offrampv1.FleetServiceClient) error {
		request := &offrampv1.ListNodesRequest{Target: target}
		for {
			page, err := c.listPage(ctx, client, request)
			if err != nil {
				return err
			}
			nodes = append(nodes, page.GetNodes()...)
			switch page.GetNextPageToken() {
			case "":
				return nil
			case request.GetPageToken():
				return errors.New("listing the nodes: the aggregator gave the same page twice")
			}
			request.PageToken = page.GetNextPageToken()
		}
	})
	return nodes, err
}

func (c *connection) listPage(ctx context.Context, client offrampv1.FleetServiceClient, request *offrampv1.ListNodesRequest) (*offrampv1.ListNodesResponse, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	page, err := client.ListNodes(ctx, request)
	return page, c.explain("listing the nodes", err)
}
