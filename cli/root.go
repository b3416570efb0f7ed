package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/version"
)

// newRoot builds the tree of commands. now is the clock that ages are told from.
func newRoot(now func() time.Time) *cobra.Command {
	var conn connection
	root := &cobra.Command{
		Use:   "kubectl-offramp",
		Short: "Ask which nodes can leave kube-proxy's ipvs mode, and what is left where",
		Long: `kubectl-offramp asks an offramp-aggregator about the fleet: which nodes could
run another kube-proxy mode, which have leftovers of ipvs mode, why, and what to
do next. "cleanup" and "restore" have a node do something, "accept" notes a
decision; all else only looks. Installed in PATH it also runs as "kubectl
offramp".

The aggregator is named by --aggregator or OFFRAMP_AGGREGATOR; where it is not,
it is reached through the API server of the kubeconfig, as kubectl port-forward
does. Every flag can be set by a variable: OFFRAMP_ and the flag's name in
capitals; flags win. Colours are for terminals alone, and NO_COLOR turns them
off.

Completion: "kubectl-offramp completion bash" (zsh, fish, powershell) prints a
script for the shell. For "kubectl offramp", put an executable file of the name
kubectl_complete-offramp into PATH with these two lines:
  #!/bin/sh
  exec kubectl-offramp __complete "$@"`,
		Example: `  kubectl offramp status
  kubectl offramp ready --target nftables && echo "the whole fleet can go"
  kubectl offramp ready --for 1.40
  kubectl offramp nodes -l pool=web --phase on-ipvs -o wide
  export OFFRAMP_AGGREGATOR=127.0.0.1:8443 OFFRAMP_CA_FILE=ca.pem
  kubectl-offramp node worker-1`,
		RunE: program.Group,
	}
	conn.addFlags(root.PersistentFlags())
	root.AddCommand(
		statusCommand(&conn), readyCommand(&conn), nextCommand(&conn), nodesCommand(&conn, now), nodeCommand(&conn),
		leftoversCommand(&conn), findingsCommand(&conn), explainCommand(), acceptCommand(&conn, now), timelineCommand(),
		serviceCommand(&conn), detailCommand(&conn), watchCommand(&conn, now), changesCommand(&conn, now), historyCommand(&conn, now),
		cleanupCommand(&conn), restoreCommand(&conn), versionCommand(),
	)
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print version, commit, date and compiler of this program. Nobody is asked.",
		Example: "  kubectl-offramp version",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "kubectl-offramp", version.Get())
			return err
		},
	}
}
