package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func nodeCommand(conn *connection) *cobra.Command {
	request := &offrampv1.GetNodeRequest{Target: offrampv1.Target_TARGET_NFTABLES}
	var list string
	var output view
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Show everything that is known of one node",
		Long: `Show what is on one node, section by section, and what it means for the target:
findings with what they were concluded from, and what to do.

With --list, text output is that list alone, one item a line; the aggregator has
the node send it if it does not hold it.`,
		Example: `  kubectl-offramp node worker-1
  kubectl-offramp node worker-1 --target iptables -o yaml
  kubectl-offramp node worker-1 --list ipvs-virtual-servers | wc -l`,
		Args: program.OneArg("node name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Node = args[0]
			if list != "" {
				request.Lists = []offrampv1.ListName{listName(list)}
			}
			answer, err := conn.node(cmd.Context(), request)
			if err != nil {
				return err
			}
			return printNode(cmd.OutOrStdout(), &output, list != "", answer)
		},
	}
	settings.TargetFlag(cmd, &request.Target)
	output.addFlag(cmd, "text", "json", "yaml", pathWord)
	cmd.Flags().Var(settings.Choice(&list, "ipvs-virtual-servers", "ipvs-link-addresses", "nftables-services"), "list",
		"send this list in full: ipvs-virtual-servers, ipvs-link-addresses, nftables-services")
	return cmd
}

func listName(word string) offrampv1.ListName {
	switch word {
	case "ipvs-virtual-servers":
		return offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS
	case "ipvs-link-addresses":
		return offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES
	case "nftables-services":
		return offrampv1.ListName_LIST_NAME_NFTABLES_SERVICES
	}
	return offrampv1.ListName_LIST_NAME_UNSPECIFIED
}

func (c *connection) node(ctx context.Context, request *offrampv1.GetNodeRequest) (*offrampv1.GetNodeResponse, error) {
	var answer *offrampv1.GetNodeResponse
	err := c.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := c.deadline(ctx)
		defer cancel()
		var err error
		answer, err = client.GetNode(ctx, request)
		return c.explain(fmt.Sprintf("asking for node %q", request.GetNode()), err)
	})
	return answer, err
}

func printNode(w io.Writer, output *view, listOnly bool, answer *offrampv1.GetNodeResponse) error {
	err := output.print(w, answer, func(w io.Writer) error {
		if listOnly {
			return printLists(w, answer.GetLists())
		}
		if err := render.Summary(w, answer.GetSummary()); err != nil {
			return err
		}
		return render.Node(w, answer.GetFacts(), answer.GetSummary().GetAssessment())
	})
	if err != nil || !listOnly {
		return err
	}
	return complete(answer.GetLists())
}

func printLists(w io.Writer, lists []*offrampv1.NamedList) error {
	for _, list := range lists {
		if err := render.List(w, list); err != nil {
			return err
		}
	}
	return nil
}

// complete refuses to pass a list off as whole when it is not: what was printed may be a part.
func complete(lists []*offrampv1.NamedList) error {
	if len(lists) == 0 {
		return errors.New("the aggregator sent no list: the node may not have reported one")
	}
	for _, list := range lists {
		if list.GetError() != "" {
			return fmt.Errorf("list %s: %s", render.Word(list.GetList().GetName()), render.Clean(list.GetError()))
		}
		if got, want := uint64(len(list.GetItems())), list.GetList().GetCount(); got != want {
			return fmt.Errorf("list %s is not complete: %d of %d items", render.Word(list.GetList().GetName()), got, want)
		}
	}
	return nil
}
