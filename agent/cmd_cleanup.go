package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/program"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// defaultStateDir is where backups, journal and lock are.
const defaultStateDir = "/var/lib/offramp"

func cleanupCommand(c *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what kube-proxy left on this node, and undo it",
		Long: `Remove from this node's kernel exactly what kube-proxy left there and the target
does not use, and nothing else, while traffic flows.

"plan" only looks: it prints the exact operations in their order and a digest
that names them. "apply" does a plan, or refuses when the node has changed or a
guard stands in the way. Before the first change everything that goes is written
to a backup in --state-dir, and "restore" brings it back.`,
		Example: `  offramp-agent cleanup plan --target nftables
  offramp-agent cleanup apply --target nftables --plan 3f2a1c9e0b7d
  offramp-agent cleanup journal`,
		RunE: program.Group,
	}
	cmd.AddCommand(planCommand(c), applyCommand(c), restoreCommand(c), journalCommand(c), backupsCommand(c))
	return cmd
}

// cleaning is what plan and apply share.
type cleaning struct {
	*look
	stateDir  string
	overrides []string
	sysctls   bool
	draining  cleanup.Draining
}

func newCleaning(c *options) *cleaning { return &cleaning{look: newLook(c)} }

func (c *cleaning) addFlags(cmd *cobra.Command) {
	c.look.addFlags(cmd)
	stateDirFlag(cmd, &c.stateDir)
	flags := cmd.Flags()
	flags.StringArrayVar(&c.overrides, "override", nil,
		"go on although this guard stands in the way, GUARD=REASON; the reason is recorded; may be repeated")
	flags.BoolVar(&c.sysctls, "reset-sysctls", false, "also set back the kernel parameters of ipvs mode that nobody else wants")
	flags.DurationVar(&c.draining.Wait, "wait-drained", 0,
		"how long apply waits for connections that would be cut; when it runs out, apply refuses")
	flags.Uint64Var(&c.draining.MaxConnections, "max-connections", 0, "how many established connections may be cut")
	flags.BoolVar(&c.draining.CloseSockets, "close-sockets", false,
		"close the host's connections that have a Service address as their own, so that clients connect anew")
}

func stateDirFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "state-dir", defaultStateDir, "where backups and journal are kept: on a disk of the host")
}

// planner checks the flags.
func (c *cleaning) planner() (*cleanup.Planner, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	overrides, err := parseOverrides(c.overrides)
	switch {
	case err != nil:
		return nil, program.UsageError{Err: err}
	case c.timeout <= 0:
		return nil, program.Usagef("--timeout must be longer than nothing, not %s", c.timeout)
	case c.draining.Wait < 0:
		return nil, program.Usagef("--wait-drained must not be less than nothing")
	case c.sysctls && c.target == offrampv1.Target_TARGET_IPVS:
		return nil, program.UsageError{Err: cleanup.ErrSysctlsUnderIPVS}
	}
	read := c.reading(config, c.stateDir, c.timeout)
	options := cleanup.Options{Target: c.target, Overrides: overrides, ResetSysctls: c.sysctls, Draining: c.draining}
	return &cleanup.Planner{Read: read, Options: options, Now: c.now}, nil
}

func (c *cleaning) now() time.Time { return c.host.Now() }

// parseOverrides takes GUARD=REASON apart.
func parseOverrides(texts []string) (map[string]string, error) {
	overrides := map[string]string{}
	for _, text := range texts {
		id, reason, _ := strings.Cut(text, "=")
		reason = strings.TrimSpace(reason)
		if err := cleanup.CheckOverride(id, reason); err != nil {
			return nil, fmt.Errorf("--override %q: %w", text, err)
		}
		overrides[id] = reason
	}
	return overrides, nil
}
