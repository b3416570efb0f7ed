package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
)

// restoring is the settings of restore.
type restoring struct {
	*cleaning
	kept kept
}

func restoreCommand(c *options) *cobra.Command {
	r := &restoring{cleaning: newCleaning(c)}
	cmd := &cobra.Command{
		Use:   "restore [ID]",
		Short: "Bring back what a clean-up removed, as far as that does no new harm",
		Long: `Bring back what a clean-up of this boot removed: the newest backup, or the one with
this ID ("backups" lists them). Ipsets come first, then chains and jumps, virtual
servers, the link. Nothing that is there is overwritten: what kube-proxy or
anybody else has made since stays as it is.

What may come back depends on the mode that runs. Under a live nftables or
iptables kube-proxy virtual servers and kube-ipvs0 never do: they would take
traffic away from it. After a reboot there is nothing to undo.

Exit codes, the first that applies:
  1  error: the call was wrong, or it failed
  2  refused: the node was booted since, or another clean-up is running
  4  could not tell: the running mode is unknown
  3  something that may come back did not
  0  done`,
		Example: `  offramp-agent cleanup restore
  offramp-agent cleanup restore 20261130T180000Z-1a2b3c4d
  offramp-agent cleanup restore --assert-no-kube-proxy "rolled back by hand"`,
		Args: atMostOneID,
		RunE: func(cmd *cobra.Command, args []string) error { return r.restore(cmd, args) },
	}
	r.kept.addFlags(cmd)
	cmd.Flags().DurationVar(&r.timeout, "timeout", defaultReading, "how long a reading of the node may take")
	return cmd
}

func atMostOneID(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return program.Usagef("%s takes one ID of a backup at most, got %q", cmd.CommandPath(), args)
	}
	return nil
}

func (r *restoring) restore(cmd *cobra.Command, args []string) error {
	planner, err := r.planner()
	if err != nil {
		return err
	}
	request := cleanup.RestoreRequest{Look: planner.Plan}
	if len(args) > 0 {
		request.ID = args[0]
	}
	config, err := r.config()
	if err != nil {
		return err
	}
	executor := r.noted(r.executor(r.host, r.kept.stateDir), noting{
		config: config, stateDir: r.kept.stateDir, log: newLog(cmd.ErrOrStderr(), r.logFormat, r.logLevel),
	})
	result, err := executor.Restore(cmd.Context(), request)
	if err != nil {
		return refusedRestore(cmd.ErrOrStderr(), err)
	}
	text := func() error { return writeRestored(cmd.OutOrStdout(), result) }
	if err := r.kept.print(cmd.OutOrStdout(), restoredDocument(result), text); err != nil {
		return err
	}
	if result.Failed() {
		return program.Code(3)
	}
	return nil
}

// refusedRestore tells a refusal from an error.
func refusedRestore(stderr io.Writer, err error) error {
	var code int
	switch {
	case errors.Is(err, cleanup.ErrRebooted), errors.Is(err, cleanup.ErrLocked):
		code = 2
	case errors.Is(err, cleanup.ErrModeUnknown):
		code = 4
	default:
		return err
	}
	if writeErr := writeLine(stderr, "offramp-agent: %s", render.Clean(err.Error())); writeErr != nil {
		return writeErr
	}
	return program.Code(code)
}

// restoredItem is one thing of a restore as scripts get it.
type restoredItem struct {
	What    string `json:"what"`
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

func restoredDocument(result *cleanup.RestoreResult) any {
	items := make([]restoredItem, 0, len(result.Items))
	for _, item := range result.Items {
		items = append(items, restoredItem{item.What, string(item.Outcome), item.Why})
	}
	return struct {
		ID      string         `json:"id"`
		Running string         `json:"running_mode"`
		Items   []restoredItem `json:"items"`
	}{result.ID, render.Word(result.Running), items}
}

func writeRestored(w io.Writer, result *cleanup.RestoreResult) error {
	if err := writeLine(w, "Restore of backup %s under running mode %s", render.Clean(result.ID), render.Word(result.Running)); err != nil {
		return err
	}
	counts := map[cleanup.RestoreOutcome]int{}
	for _, item := range result.Items {
		counts[item.Outcome]++
		if item.Outcome == cleanup.Restored {
			continue
		}
		if err := writeLine(w, "  - %s: %s: %s", render.Clean(item.What), item.Outcome, render.Clean(item.Why)); err != nil {
			return err
		}
	}
	for _, outcome := range []cleanup.RestoreOutcome{cleanup.Restored, cleanup.Kept, cleanup.NotAllowed, cleanup.Failed} {
		if counts[outcome] > 0 {
			if err := writeLine(w, "  %s: %d", outcome, counts[outcome]); err != nil {
				return err
			}
		}
	}
	return nil
}
