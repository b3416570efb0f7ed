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

func watchCommand(conn *connection, now func() time.Time) *cobra.Command {
	target, output := offrampv1.Target_TARGET_NFTABLES, ""
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print what changes on the nodes, as it happens",
		Long: `Print what changes on the nodes, a line for each change, as it happens and until
interrupted: mode, phase, readiness, leftovers, findings, versions, whether the
node is connected. "-o json" prints every event as the aggregator sends it, one
a line, the first round included; "nodes --watch" prints whole rows.`,
		Example: `  kubectl-offramp watch
  kubectl-offramp watch --target iptables -o json | jq .node.node`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return conn.watch(cmd.Context(), target, newTeller(cmd.OutOrStdout(), output, now))
		},
	}
	settings.TargetFlag(cmd, &target)
	settings.OutputFlag(cmd, &output, "text", "json")
	return cmd
}

// teller prints what is different about nodes.
type teller struct {
	w      io.Writer
	output string
	now    func() time.Time
	known  map[string]*offrampv1.NodeSummary
	synced bool
}

func newTeller(w io.Writer, output string, now func() time.Time) *teller {
	return &teller{w: w, output: output, now: now, known: map[string]*offrampv1.NodeSummary{}}
}

func (t *teller) event(event *offrampv1.WatchResponse) error {
	if t.output == "json" {
		return render.JSONLine(t.w, event)
	}
	switch told := event.GetEvent().(type) {
	case *offrampv1.WatchResponse_Node:
		return t.node(told.Node)
	case *offrampv1.WatchResponse_Synced:
		t.synced = true
		if _, err := fmt.Fprintf(t.w, "Watching %d nodes; what changes comes below.\n", len(t.known)); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return render.Missing(t.w, told.Synced.GetIncomplete())
	case *offrampv1.WatchResponse_Forgotten:
		delete(t.known, told.Forgotten)
		return t.say(told.Forgotten, []string{"forgotten by the aggregator"})
	}
	return nil
}

func (t *teller) node(node *offrampv1.NodeSummary) error {
	before := t.known[node.GetNode()]
	t.known[node.GetNode()] = node
	return t.say(node.GetNode(), render.Difference(before, node))
}

// say prints a line for each, but for those of the first round.
func (t *teller) say(node string, lines []string) error {
	if !t.synced {
		return nil
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(t.w, "%s  %s  %s\n", t.now().UTC().Format("15:04:05Z"), render.Clean(node), line); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
	}
	return nil
}
