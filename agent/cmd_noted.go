package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/agent/probe"
	"offramp.dev/offramp/internal/program"
)

// noting is what surrounds the clean-ups of a node: connections that are tried, and what is written down of it.
type noting struct {
	config   collect.Config
	stateDir string
	// connect has connections tried, those in given before those that are found.
	connect bool
	given   []probe.Target
	// told is told of each entry of the audit log; nil for nobody.
	told func(*audit.Entry)
	log  *slog.Logger
}

// noted surrounds an executor: connections are tried before and after each clean-up, and each clean-up, restore and refusal
// gets its line in the audit log.
func (p parts) noted(inner executor, n noting) *audit.Executor {
	noted := &audit.Executor{
		Cleaner: inner, Log: p.audit(n.stateDir), Told: n.told, Caller: p.caller(),
		Node: n.config.Node, Asserted: n.config.AssertNone, Output: n.log, Now: n.config.Host.Now,
	}
	if n.connect {
		noted.Cleaner = &probe.Executor{
			Cleaner: inner, Prober: p.prober, Undo: noted.Restore, Log: n.log,
			Targets: func(ctx context.Context) ([]probe.Target, error) { return p.targets(ctx, n.config, n.given) },
		}
	}
	return noted
}

// targets are the connections to try: those that a person named, and those that the kernel tells of.
func (p parts) targets(ctx context.Context, config collect.Config, given []probe.Target) ([]probe.Target, error) {
	services, err := p.services(ctx, config)
	if err != nil {
		err = fmt.Errorf("looking for Services: %w", err)
	}
	return probe.Targets(given, services), err
}

// connecting are the flags of what is tried.
type connecting struct{ to []string }

func (c *connecting) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&c.to, "connect-to", nil,
		"also try this connection, PROTOCOL/SERVICE=ENDPOINT,... such as tcp/10.96.0.1:443=192.0.2.1:6443; may be repeated")
}

func (c *connecting) targets() ([]probe.Target, error) {
	if len(c.to) > probe.MaxTargets {
		return nil, program.Usagef("--connect-to may be given %d times", probe.MaxTargets)
	}
	var targets []probe.Target
	for _, text := range c.to {
		target, err := probe.ParseTarget(text)
		if err != nil {
			return nil, program.Usagef("--connect-to: %w", err)
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// metricsFile writes metrics for node_exporter's textfile collector, counted from the whole audit log, so that they do not
// start anew with each clean-up.
func metricsFile(path string, log audit.Keeper) error {
	entries, err := log.Entries()
	m := metrics.New()
	for _, entry := range entries {
		m.Finished(entry)
	}
	if err := errors.Join(err, m.WriteFile(path)); err != nil {
		return fmt.Errorf("writing --metrics-file: %w", err)
	}
	return nil
}
