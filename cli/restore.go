package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// restoring is the settings of restore.
type restoring struct {
	giving
	output, backup string
}

func restoreCommand(conn *connection) *cobra.Command {
	r := &restoring{giving: giving{connection: conn}}
	cmd := &cobra.Command{
		Use:   "restore NODE",
		Short: "Have a node bring back what a clean-up removed, as far as that does no new harm",
		Long: `Have a node bring back what a clean-up of this boot removed: from the newest
backup, or the one that --backup names. What may come back depends on the mode
that runs there; nothing that is there is overwritten.
` + cleanupExits,
		Example: `  kubectl-offramp restore worker-1
  kubectl-offramp restore worker-1 --backup 20261130T180000Z-1a2b3c4d`,
		Args: program.OneArg("node name"),
		RunE: func(cmd *cobra.Command, args []string) error { return r.restore(cmd, args[0]) },
	}
	r.addFlags(cmd)
	settings.OutputFlag(cmd, &r.output, "text", "json", "yaml")
	cmd.Flags().StringVar(&r.backup, "backup", "", "ID of the backup, as the result of the clean-up named it (default: the newest)")
	return cmd
}

func (r *restoring) restore(cmd *cobra.Command, node string) error {
	if err := r.prepare(cmd); err != nil {
		return err
	}
	id := r.id
	if id == "" {
		id = newID()
	}
	again := "kubectl-offramp restore " + node
	if r.backup != "" {
		again += " --backup " + r.backup
	}
	result, err := r.give(cmd.Context(), &order{
		id: id, doing: fmt.Sprintf("a restore of node %q", node), again: again,
		call: func(ctx context.Context, client offrampv1.CleanupServiceClient, timeout *durationpb.Duration) (*answers, error) {
			return opened(client.Restore(ctx, &offrampv1.RestoreRequest{Node: node, OrderId: id, BackupId: r.backup, Timeout: timeout}))
		},
	})
	if err != nil {
		return err
	}
	if err := printOr(cmd.OutOrStdout(), r.output, result, func(w io.Writer) error { return showRestored(w, result) }); err != nil {
		return err
	}
	return exit(result)
}

func showRestored(w io.Writer, result *offrampv1.OrderResult) error {
	if err := printOutcome(w, result); err != nil {
		return err
	}
	for _, line := range result.GetRestored() {
		if _, err := fmt.Fprintf(w, "  - %s\n", render.Clean(line)); err != nil {
			return err
		}
	}
	return nil
}
