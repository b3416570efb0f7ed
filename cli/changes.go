package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// past is a question for what happened.
type past struct {
	since  string
	limit  uint32
	output view
}

const (
	defaultChanges = 200
	maxChanges     = 1000
)

func (p *past) addFlags(cmd *cobra.Command, since string) {
	cmd.Flags().StringVar(&p.since, "since", since, "how far back: 24h, 7d, or a date")
	cmd.Flags().Uint32Var(&p.limit, "limit", defaultChanges, fmt.Sprintf("how many changes at most, up to %d", maxChanges))
	p.output.addFlag(cmd, "text", "json", "yaml", "csv", pathWord)
}

func changesCommand(conn *connection, now func() time.Time) *cobra.Command {
	var p past
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "Tell what changed in the fleet, newest first",
		Long: `Tell what changed on the nodes, newest first: modes, clean-ups, restores, boots,
versions of kube-proxy. It is what the nodes themselves remember; those that do
not remember that far back are named, and the exit code is then 4, as it is when
the aggregator may not have heard of every node.`,
		Example: `  kubectl-offramp changes --since 24h
  kubectl-offramp changes --since 2026-11-01 -o csv`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := p.ask(cmd.Context(), conn, "", now())
			if err != nil {
				return err
			}
			if err := p.print(cmd, answer); err != nil {
				return err
			}
			if answer.GetIncomplete() > 0 || answer.GetNodesMissing() != "" {
				return program.Code(exitUnknown)
			}
			return nil
		},
	}
	p.addFlags(cmd, "24h")
	return cmd
}

func historyCommand(conn *connection, now func() time.Time) *cobra.Command {
	var p past
	cmd := &cobra.Command{
		Use:   "history NODE",
		Short: "Tell what happened on one node, newest first",
		Long: `Tell what happened on one node, newest first, as far back as the node remembers:
modes, clean-ups, restores, boots, versions of kube-proxy.`,
		Example: `  kubectl-offramp history worker-1
  kubectl-offramp history worker-1 --since 7d -o json`,
		Args: program.OneArg("node name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := p.ask(cmd.Context(), conn, args[0], now())
			if err != nil {
				return err
			}
			if p.since == "" {
				// No memory reaches back to the beginning of time.
				answer.Incomplete, answer.IncompleteSamples = 0, nil
			}
			return p.print(cmd, answer)
		},
	}
	p.addFlags(cmd, "")
	return cmd
}

// ask asks about one node, or about all when it names none.
func (p *past) ask(ctx context.Context, conn *connection, node string, now time.Time) (*offrampv1.ListChangesResponse, error) {
	request := &offrampv1.ListChangesRequest{Node: node, Limit: p.limit}
	if p.limit == 0 || p.limit > maxChanges {
		return nil, program.Usagef("--limit is 1 to %d, not %d", maxChanges, p.limit)
	}
	if p.since != "" {
		since, err := parseSince(p.since, now)
		if err != nil {
			return nil, program.Usagef("--since: %w", err)
		}
		request.Since = timestamppb.New(since)
	}
	var answer *offrampv1.ListChangesResponse
	err := conn.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := conn.deadline(ctx)
		defer cancel()
		var err error
		answer, err = client.ListChanges(ctx, request)
		return conn.explain("asking what changed", err)
	})
	return answer, err
}

func (p *past) print(cmd *cobra.Command, answer *offrampv1.ListChangesResponse) error {
	return p.output.print(cmd.OutOrStdout(), answer, func(w io.Writer) error {
		if p.output.word == "csv" {
			return render.ChangesCSV(w, answer.GetChanges())
		}
		if err := render.Changes(w, answer); err != nil || len(answer.GetChanges()) < int(p.limit) {
			return err
		}
		_, err := fmt.Fprintf(w, "There may be more: --limit %d was reached.\n", p.limit)
		return err
	})
}
