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
	request := &offrampv1.GetReadinessRequest{Target: offrampv1.Target_TARGET_NFTABLES}
	var listening time.Duration
	var output view
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Tell whether the fleet could go to a target, or run a version, by exit code",
		Long: `Tell whether every node of the fleet, or of the part that -l selects, could go
to a target, what is in the way, and what to do next. With --for VERSION the
answer, and the exit code, are about running that minor version of Kubernetes
instead.

Exit codes, the first that applies:
  1  error: the question could not be asked
  2  blocked: at least one node, or the cluster's configuration, cannot go there
  4  could not tell: a node is unknown, silent or never reported, no node has
     reported, or the aggregator has not listened for long enough to have heard
     of every node
  3  every node could go, and some have leftovers
  0  every node could go`,
		Example: `  kubectl-offramp ready
  kubectl-offramp ready --for 1.40
  kubectl-offramp ready --target none -l pool=web; echo "exit code $?"
  kubectl-offramp ready -o json > readiness.json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleet, err := conn.readiness(cmd.Context(), request)
			if err != nil {
				return err
			}
			code, reason := answer(fleet, listening)
			text := func(w io.Writer) error { return render.Ready(w, fleet, reason) }
			if err := output.print(cmd.OutOrStdout(), fleet, text); err != nil {
				return err
			}
			return program.Code(code)
		},
	}
	settings.TargetFlag(cmd, &request.Target)
	selectorFlag(cmd, &request.Selector)
	output.addFlag(cmd, "text", "json", "yaml", pathWord)
	cmd.Flags().StringVar(&request.ForVersion, "for", "", "minor version of Kubernetes to ask about, such as 1.40")
	cmd.Flags().DurationVar(&listening, "min-listening", defaultListening,
		"how long the aggregator must have listened for its answer to count as complete")
	return cmd
}

// answer maps the aggregator's verdict to an exit code, in the order of precedence, and says why.
func answer(fleet *offrampv1.GetReadinessResponse, listening time.Duration) (code int, reason string) {
	could := "go there"
	if version := fleet.GetUpgrade().GetVersion(); version != "" {
		could = "run Kubernetes " + version
	}
	if blocked, reason := isBlocked(fleet, could); blocked {
		return exitBlocked, reason
	}
	if reason := openReason(fleet, listening); reason != "" {
		return exitUnknown, "could not tell: " + reason
	}
	if fleet.GetWithLeftovers() > 0 {
		return exitRemains, "every node could " + could + "; some have leftovers"
	}
	return 0, "every node could " + could
}

// exitBlocked is the code for a fleet or a node that cannot go where it should.
const exitBlocked = 2

func isBlocked(fleet *offrampv1.GetReadinessResponse, could string) (bool, string) {
	blocked := offrampv1.Verdict_VERDICT_BLOCKED
	switch {
	case fleet.GetUpgrade() != nil:
		return fleet.GetUpgrade().GetVerdict() == blocked, "blocked: the fleet could not " + could
	case fleet.GetBlocked() > 0:
		return true, "blocked: not every node could " + could
	}
	return fleet.GetVerdict() == blocked, "blocked: the cluster is in the way"
}

// openReason says why an answer that is not "blocked" does not count as whole; "" when it does.
func openReason(fleet *offrampv1.GetReadinessResponse, listening time.Duration) string {
	heard := fleet.GetAt().AsTime().Sub(fleet.GetListeningSince().AsTime())
	switch {
	case fleet.GetNodes() == 0:
		return "no node has reported, or none is selected"
	case fleet.GetIncomplete() != "":
		return "nodes may be missing: " + fleet.GetIncomplete()
	case fleet.GetSilent() > 0, fleet.GetNeverSeen() > 0, unsettled(fleet):
		return "some nodes are unknown or silent"
	case fleet.GetLeftovers().GetUndecided():
		return "it is not known what is left on some nodes"
	case fleet.GetAt() == nil, fleet.GetListeningSince() == nil, heard < listening:
		return fmt.Sprintf("the aggregator has listened for less than %s, so nodes may be missing", listening)
	}
	return ""
}

// unsettled reports whether the answer to the question leaves something open; what the target says does not matter where a
// version was asked about.
func unsettled(fleet *offrampv1.GetReadinessResponse) bool {
	if fleet.GetUpgrade() != nil {
		return fleet.GetUpgrade().GetVerdict() != offrampv1.Verdict_VERDICT_READY
	}
	judged := fleet.GetReady() + fleet.GetBlocked() + fleet.GetUnknown()
	return fleet.GetUnknown() > 0 || judged != fleet.GetNodes() || fleet.GetVerdict() == offrampv1.Verdict_VERDICT_UNKNOWN
}
