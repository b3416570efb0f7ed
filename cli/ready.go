package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// defaultListening is three heartbeats: an aggregator that just started does not know yet which nodes it has not heard of.
const defaultListening = 3 * time.Minute

func readyCommand(conn *connection) *cobra.Command {
	target, output := offrampv1.Target_TARGET_NFTABLES, ""
	var listening time.Duration
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Tell whether the whole fleet could go to a target, by exit code",
		Long: `Tell whether every node of the fleet could go to a target, and what is in the way.

Exit codes, the first that applies:
  1  error: the question could not be asked
  2  blocked: at least one node cannot go there
  4  could not tell: a node is unknown or silent, no node has reported, or the
     aggregator has not listened for long enough to have heard of every node
  3  every node could go, and some have leftovers
  0  every node could go`,
		Example: `  kubectl-offramp ready
  kubectl-offramp ready --target none; echo "exit code $?"
  kubectl-offramp ready -o json > readiness.json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := conn.readiness(cmd.Context(), target)
			if err != nil {
				return err
			}
			if fleet.GetTarget() != target {
				return fmt.Errorf("the aggregator answered for target %s; --target was %s", render.Word(fleet.GetTarget()), render.Word(target))
			}
			code, reason := answer(fleet, listening)
			text := func(w io.Writer) error { return render.Ready(w, fleet, reason) }
			if err := printOr(cmd.OutOrStdout(), output, fleet, text); err != nil {
				return err
			}
			return program.Code(code)
		},
	}
	settings.TargetFlag(cmd, &target)
	settings.OutputFlag(cmd, &output, "text", "json", "yaml")
	cmd.Flags().DurationVar(&listening, "min-listening", defaultListening,
		"how long the aggregator must have listened for its answer to count as complete")
	return cmd
}

// answer maps the counts of the aggregator to an exit code, in the order of precedence, and says why.
func answer(fleet *offrampv1.GetReadinessResponse, listening time.Duration) (code int, reason string) {
	judged := fleet.GetReady() + fleet.GetBlocked() + fleet.GetUnknown()
	heard := fleet.GetAt().AsTime().Sub(fleet.GetListeningSince().AsTime())
	switch {
	case fleet.GetBlocked() > 0:
		return 2, "blocked: not every node could go there"
	case fleet.GetNodes() == 0:
		return 4, "could not tell: no node has reported"
	case fleet.GetUnknown() > 0, fleet.GetSilent() > 0, judged != fleet.GetNodes():
		return 4, "could not tell: some nodes are unknown or silent"
	case fleet.GetLeftovers().GetUndecided():
		return 4, "could not tell: it is not known what is left on some nodes"
	case fleet.GetAt() == nil, fleet.GetListeningSince() == nil, heard < listening:
		return 4, fmt.Sprintf("could not tell: the aggregator has listened for less than %s, so nodes may be missing", listening)
	case fleet.GetWithLeftovers() > 0:
		return 3, "every node could go there; some have leftovers"
	}
	return 0, "every node could go there"
}
