package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// defaultReading bounds one reading of a node. A node with 10,000 Services takes a few seconds.
const defaultReading = time.Minute

// look is what inspect and verify share: one reading, judged for a target.
type look struct {
	*options
	target  offrampv1.Target
	output  string
	timeout time.Duration
}

func newLook(c *options) *look {
	return &look{options: c, target: offrampv1.Target_TARGET_NFTABLES}
}

func (l *look) addFlags(cmd *cobra.Command) {
	settings.TargetFlag(cmd, &l.target)
	settings.OutputFlag(cmd, &l.output, "text", "json", "yaml")
	cmd.Flags().DurationVar(&l.timeout, "timeout", defaultReading, "how long the reading may take")
}

// read reads the node once. Sections that cannot be read, or not in time, are no error: they say so themselves.
func (l *look) read(ctx context.Context) (*offrampv1.NodeFacts, *offrampv1.Assessment, error) {
	if l.timeout <= 0 {
		return nil, nil, program.Usagef("--timeout must be longer than nothing, not %s", l.timeout)
	}
	config, err := l.config()
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	facts := l.scan(limited, config)
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("reading the node was interrupted: %w", err)
	}
	if len(facts.GetSections()) == 0 {
		return nil, nil, errors.New("nothing of the node could be read")
	}
	return facts, l.assess(facts, l.target), nil
}

func inspectCommand(c *options) *cobra.Command {
	l := newLook(c)
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Read this node once and print what is there and what it means",
		Long: `Read this node once and print every section in words, then what it means for a
target: the phase, what is left of ipvs mode, and each finding with its evidence
and remedy. Nothing on the node is changed, and no aggregator is needed.

The exit code is 0 whatever was found, also when sections could not be read;
"verify" judges by exit code.`,
		Example: `  offramp-agent inspect
  offramp-agent inspect --target iptables -o json
  offramp-agent inspect --proc-root /host/proc --sys-root /host/sys --host-root /host`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, assessment, err := l.read(cmd.Context())
			if err != nil {
				return err
			}
			document := &offrampv1.GetNodeResponse{Summary: summary(facts, assessment), Facts: facts}
			return l.print(cmd.OutOrStdout(), document, func(w io.Writer) error { return render.Node(w, facts, assessment) })
		},
	}
	l.addFlags(cmd)
	return cmd
}

func (l *look) print(w io.Writer, document proto.Message, text func(io.Writer) error) error {
	switch l.output {
	case "json":
		return render.JSON(w, document)
	case "yaml":
		return render.YAML(w, document)
	}
	return text(w)
}

// summary is the part of a node's summary that a single reading can fill.
func summary(facts *offrampv1.NodeFacts, assessment *offrampv1.Assessment) *offrampv1.NodeSummary {
	row := &offrampv1.NodeSummary{Node: facts.GetNode(), AgentVersion: facts.GetAgentVersion(), Assessment: assessment}
	for _, section := range facts.GetSections() {
		if kernel := section.GetStable().GetKernel(); kernel != nil {
			row.KernelRelease, row.OsPrettyName = kernel.GetRelease(), kernel.GetOsPrettyName()
		}
		if proxy := section.GetStable().GetKubeProxy(); proxy != nil {
			row.KubeProxyVersion = proxy.GetVersion()
		}
	}
	return row
}
