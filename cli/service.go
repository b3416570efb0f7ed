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

// serviceTimeout is a little longer than the aggregator waits for the nodes, so that its summary still arrives.
const serviceTimeout = 45 * time.Second

func serviceCommand(conn *connection) *cobra.Command {
	request := &offrampv1.GetServiceRequest{}
	var namespace, output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "service NAMESPACE/NAME",
		Short: "Show one Service as every node sees it",
		Long: `Ask every node now what it has for one Service, and print each answer as it
comes: on nodes in ipvs mode virtual servers and real servers with their
connections, on the others the entries of nftables or iptables that stand for
it. At the end come the connections of each real server by node:
least-connection never counted beyond its own node. "-o wide" prints every
entry; "-o json" every answer, one a line. Here -n is the Service's namespace;
--offramp-namespace is Offramp's.

Exit codes: 0 every node answered; 4 some did not, and are named; 1 error.`,
		Example: `  kubectl-offramp service default/web
  kubectl-offramp service -n default web -l pool=web -o wide
  kubectl-offramp service kube-system/kube-dns -o json | jq .node`,
		Args: program.OneArg("Service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if request.Namespace, request.Name, err = serviceName(args[0], namespace); err != nil {
				return err
			}
			patient := *conn
			patient.timeout = timeout
			return patient.service(cmd.Context(), request, newServiceShow(cmd, output))
		},
	}
	selectorFlag(cmd, &request.Selector)
	settings.OutputFlag(cmd, &output, "text", "wide", "json", "yaml")
	// It hides the --timeout of other questions: every node is asked, and one that is slow has its time.
	cmd.Flags().DurationVar(&timeout, "timeout", serviceTimeout, "how long the nodes may take altogether")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", `namespace of the Service (default "default")`)
	// It can only fail for a flag that does not exist.
	_ = settings.OnlyFlag(cmd.Flags(), "namespace")
	return cmd
}

// serviceName reads NAMESPACE/NAME, or NAME in the namespace of -n.
func serviceName(text, namespace string) (of, name string, err error) {
	of, name, both := strings.Cut(text, "/")
	switch {
	case !both:
		of, name = namespace, text
	case namespace != "" && namespace != of:
		return "", "", program.Usagef("which namespace: %q or %q?", of, namespace)
	}
	if of == "" && !both {
		of = "default"
	}
	if of == "" || name == "" || strings.Contains(name, "/") {
		return "", "", program.Usagef("%q is no Service, such as default/web", text)
	}
	return of, name, nil
}

// service prints the answers as they come. What broke off is told, after what there was of it.
func (c *connection) service(ctx context.Context, request *offrampv1.GetServiceRequest, show *serviceShow) error {
	doing := fmt.Sprintf("asking the nodes for the Service %s/%s", request.GetNamespace(), request.GetName())
	err := c.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := c.deadline(ctx)
		defer cancel()
		stream, err := client.GetService(ctx, request)
		for err == nil {
			var event *offrampv1.GetServiceResponse
			if event, err = stream.Recv(); err != nil {
				break
			}
			if failed := show.event(event); failed != nil {
				return printError{failed}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return c.explain(doing, err)
	})
	return show.end(err)
}

// serviceShow prints the answers about a Service.
type serviceShow struct {
	w        io.Writer
	output   string
	progress *progress
	nodes    []*offrampv1.NodeService
	summary  *offrampv1.ServiceSummary
}

func newServiceShow(cmd *cobra.Command, output string) *serviceShow {
	return &serviceShow{w: cmd.OutOrStdout(), output: output, progress: newProgress(cmd.ErrOrStderr())}
}

func (s *serviceShow) event(event *offrampv1.GetServiceResponse) error {
	s.progress.end()
	if node := event.GetNode(); node != nil {
		s.nodes = append(s.nodes, node)
	}
	if summary := event.GetSummary(); summary != nil {
		s.summary = summary
	}
	if err := s.write(event); err != nil {
		return err
	}
	if s.summary == nil {
		s.progress.passing("%d nodes answered so far", len(s.nodes))
	}
	return nil
}

func (s *serviceShow) write(event *offrampv1.GetServiceResponse) error {
	switch s.output {
	case "json":
		return render.JSONLine(s.w, event)
	case "yaml":
		if _, err := io.WriteString(s.w, "---\n"); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return render.YAML(s.w, event)
	}
	switch told := event.GetEvent().(type) {
	case *offrampv1.GetServiceResponse_Service:
		return render.ServiceHead(s.w, told.Service)
	case *offrampv1.GetServiceResponse_Node:
		return render.NodeService(s.w, told.Node, s.output == "wide")
	case *offrampv1.GetServiceResponse_Summary:
		return errors.Join(render.Balance(s.w, s.nodes), render.ServiceEnd(s.w, told.Summary))
	}
	return nil
}

// end says how it ended: err when nothing came of it, exitUnknown when not every node has answered.
func (s *serviceShow) end(err error) error {
	s.progress.end()
	var output printError
	switch {
	case errors.As(err, &output):
		return output.error
	case err != nil && len(s.nodes) == 0:
		return err
	}
	if s.summary == nil {
		why := "the aggregator ended its answer without a summary"
		if err != nil {
			why = err.Error()
		}
		s.progress.say("not complete, only %d nodes answered: %s", len(s.nodes), why)
		if s.output == "text" || s.output == "wide" {
			if failed := render.Balance(s.w, s.nodes); failed != nil {
				return failed
			}
		}
		return program.Code(exitUnknown)
	}
	if s.summary.GetAsked() == 0 || s.summary.GetIncomplete() != "" || s.summary.GetAnswered() < s.summary.GetAsked() || slices.ContainsFunc(s.nodes, failedAnswer) {
		return program.Code(exitUnknown)
	}
	return nil
}

func failedAnswer(node *offrampv1.NodeService) bool { return node.GetError() != "" }
