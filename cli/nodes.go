package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// listing is a question for nodes.
type listing struct {
	request offrampv1.ListNodesRequest
	phases  []string
	mode    string
	sortBy  string
	follow  bool
	output  view
}

func nodesCommand(conn *connection, now func() time.Time) *cobra.Command {
	l := &listing{}
	l.request.Target = offrampv1.Target_TARGET_NFTABLES
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes, one a line",
		Long: `List the nodes, one a line: kernel, kube-proxy's running mode, the phase the
node is in, whether it could go to the target, how many artefacts of
kube-proxy's are left on it, and when it was last heard of. Flags choose which;
all that are given must hold.

LEFTOVERS counts virtual servers, the link kube-ipvs0, ipsets, chains, jumps and
nftables tables; "?" means that it could not be told. With --watch, nodes that
change are printed again, until interrupted.`,
		Example: `  kubectl-offramp nodes
  kubectl-offramp nodes -l pool=web --phase on-ipvs --sort-by ready
  kubectl-offramp nodes --finding kernel-too-old -o name
  kubectl-offramp nodes -o jsonpath='{range .nodes[*]}{.node} {.kernelRelease}{"\n"}{end}'
  kubectl-offramp nodes --watch --target iptables`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.read(); err != nil {
				return err
			}
			if l.follow {
				return conn.watch(cmd.Context(), l.request.GetTarget(), newFollower(cmd.OutOrStdout(), cmd.ErrOrStderr(), l.output.word, now))
			}
			return conn.printNodes(cmd, l, now())
		},
	}
	l.addFlags(cmd)
	return cmd
}

func (l *listing) addFlags(cmd *cobra.Command) {
	settings.TargetFlag(cmd, &l.request.Target)
	selectorFlag(cmd, &l.request.Selector)
	l.output.addFlag(cmd, "text", "wide", "json", "yaml", "csv", "name", pathWord)
	flags := cmd.Flags()
	flags.StringSliceVar(&l.phases, "phase", nil, "only nodes in these phases: "+strings.Join(phaseWords(), ", "))
	flags.BoolVar(&l.request.WithLeftovers, "leftovers", false, "only nodes with leftovers")
	flags.StringVar(&l.request.FindingId, "finding", "", `only nodes with this finding; "explain" lists them`)
	flags.Var(settings.Choice(&l.mode, modeWords()...), "mode", "only nodes that run this mode: "+strings.Join(modeWords(), ", "))
	l.sortBy = "name"
	flags.Var(settings.Choice(&l.sortBy, render.SortKeys()...), "sort-by", "order of the nodes: "+strings.Join(render.SortKeys(), ", "))
	flags.BoolVarP(&l.follow, "watch", "w", false, "go on and print every change")
	for flag, words := range map[string][]string{"phase": phaseWords(), "mode": modeWords(), "sort-by": render.SortKeys(), "finding": findingIDs()} {
		// It can only fail for a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

func modeWords() []string { return []string{"iptables", "ipvs", "nftables", "none", "unknown"} }

// phaseWords are how people say the phases.
func phaseWords() []string {
	values := offrampv1.Phase(0).Descriptor().Values()
	words := make([]string, 0, values.Len())
	for i := 1; i < values.Len(); i++ {
		words = append(words, render.Word(offrampv1.Phase(values.Get(i).Number())))
	}
	return words
}

// read turns words into the question.
func (l *listing) read() error {
	l.request.Phases = nil
	for _, word := range l.phases {
		i := slices.Index(phaseWords(), word)
		if i < 0 {
			return program.Usagef("--phase: %q is none of %s", word, strings.Join(phaseWords(), ", "))
		}
		l.request.Phases = append(l.request.Phases, offrampv1.Phase(offrampv1.Phase(0).Descriptor().Values().Get(i+1).Number()))
	}
	l.request.RunningMode = offrampv1.ProxyMode(offrampv1.ProxyMode_value["PROXY_MODE_"+strings.ToUpper(l.mode)])
	if !l.follow {
		return nil
	}
	if !slices.Contains([]string{"text", "wide", "json", "yaml", "name"}, l.output.word) {
		return program.Usagef("--watch cannot print %s", l.output.word)
	}
	if l.filters() || l.sortBy != "name" {
		return program.Usagef("--watch shows every node as it changes: it goes with no filter and no order")
	}
	return nil
}

// filters reports whether some nodes may be left out.
func (l *listing) filters() bool {
	return l.request.GetSelector() != "" || len(l.phases) > 0 || l.request.GetWithLeftovers() || l.request.GetFindingId() != "" || l.mode != ""
}

func (c *connection) printNodes(cmd *cobra.Command, l *listing, now time.Time) error {
	answer, err := c.listNodes(cmd.Context(), &l.request, newProgress(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	nodes := answer.GetNodes()
	render.SortNodes(nodes, l.sortBy)
	if err := render.Missing(cmd.ErrOrStderr(), answer.GetIncomplete()); err != nil {
		return err
	}
	return l.output.print(cmd.OutOrStdout(), answer, func(w io.Writer) error {
		switch {
		case l.output.word == "name":
			return render.Names(w, nodes)
		case l.output.word == "csv":
			return render.NodesCSV(w, nodes)
		case len(nodes) == 0 && l.filters():
			_, err := fmt.Fprintln(w, "No node is like that.")
			return err
		}
		return render.Nodes(w, nodes, l.output.wide(), now)
	})
}

// listNodes fetches every page.
func (c *connection) listNodes(ctx context.Context, request *offrampv1.ListNodesRequest, shown *progress) (*offrampv1.ListNodesResponse, error) {
	var nodes *offrampv1.ListNodesResponse
	err := c.use(func(client offrampv1.FleetServiceClient) error {
		var err error
		nodes, err = c.allPages(ctx, client, request, shown)
		return err
	})
	return nodes, err
}

// allPages gives one answer with all nodes. Each page has a deadline of its own.
func (c *connection) allPages(ctx context.Context, client offrampv1.FleetServiceClient, request *offrampv1.ListNodesRequest, shown *progress) (*offrampv1.ListNodesResponse, error) {
	defer shown.end()
	whole := &offrampv1.ListNodesResponse{}
	for {
		page, err := c.listPage(ctx, client, request)
		if err != nil {
			return nil, err
		}
		whole.Nodes, whole.At = append(whole.GetNodes(), page.GetNodes()...), page.GetAt()
		// Of the first page: what came back while the others were asked for may be missing from it.
		if request.GetPageToken() == "" {
			whole.Incomplete = page.GetIncomplete()
		}
		switch page.GetNextPageToken() {
		case "":
			return whole, nil
		case request.GetPageToken():
			return nil, errors.New("listing the nodes: the aggregator gave the same page twice")
		}
		request.PageToken = page.GetNextPageToken()
		shown.passing("%d nodes so far", len(whole.GetNodes()))
	}
}

func (c *connection) listPage(ctx context.Context, client offrampv1.FleetServiceClient, request *offrampv1.ListNodesRequest) (*offrampv1.ListNodesResponse, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	page, err := client.ListNodes(ctx, request)
	return page, c.explain("listing the nodes", err)
}
