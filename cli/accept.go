package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/readiness"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// accepting is one of three things to do with accepted findings.
type accepting struct {
	request  offrampv1.AcceptFindingRequest
	until    string
	list     bool
	withdraw string
	output   view
}

func acceptCommand(conn *connection, now func() time.Time) *cobra.Command {
	a := &accepting{}
	cmd := &cobra.Command{
		Use:   "accept ID --reason TEXT --until DATE",
		Short: "Accept a finding on some nodes until a date; list and withdraw that",
		Long: `Accept a finding: it stays in sight, marked, and no longer stands in the way of
the nodes that -l selects, or of all. A reason and an end are asked for, at most
a year away; then the finding counts again. The aggregator keeps it with your
name.

--list shows what is accepted, and what has run out; --withdraw takes one back,
by the id that --list shows. Accepting and withdrawing need the right to do so.`,
		Example: `  kubectl-offramp accept ipvs-sysctls-left -l pool=web --reason "harmless here, OPS-17" --until 30d
  kubectl-offramp accept kernel-too-old --reason "replaced in March" --until 2027-03-31
  kubectl-offramp accept --list
  kubectl-offramp accept --withdraw a1b2c3d4`,
		Args:              atMostOne("id of a finding"),
		ValidArgsFunction: completeFindings,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd, conn, args, now())
		},
	}
	selectorFlag(cmd, &a.request.Selector)
	flags := cmd.Flags()
	flags.StringVar(&a.request.Reason, "reason", "", "why it may stay")
	flags.StringVar(&a.until, "until", "", "when it counts again: a date (2027-01-31, UTC) or a length of time (30d, 12h)")
	flags.BoolVar(&a.list, "list", false, "list accepted findings instead")
	flags.StringVar(&a.withdraw, "withdraw", "", "take back the acceptance of this id instead")
	a.output.addFlag(cmd, "text", "json", "yaml", pathWord)
	return cmd
}

func (a *accepting) run(cmd *cobra.Command, conn *connection, args []string, now time.Time) error {
	wants := len(args)
	for _, also := range []bool{a.list, a.withdraw != ""} {
		if also {
			wants++
		}
	}
	switch {
	case wants != 1:
		return program.Usagef("%s wants one of the id of a finding, --list and --withdraw", cmd.CommandPath())
	case a.list:
		return a.printList(cmd, conn, now)
	case a.withdraw != "":
		return a.takeBack(cmd, conn)
	}
	a.request.FindingId = args[0]
	return a.accept(cmd, conn, now)
}

func (a *accepting) accept(cmd *cobra.Command, conn *connection, now time.Time) error {
	if _, known := readiness.Explain(a.request.GetFindingId()); !known {
		return unknownFinding(a.request.GetFindingId())
	}
	if a.request.GetReason() == "" || a.until == "" {
		return program.Usagef("why, and until when? Accepting a finding wants --reason and --until")
	}
	until, err := parseUntil(a.until, now)
	if err != nil {
		return program.Usagef("--until: %w", err)
	}
	a.request.Until = timestamppb.New(until)
	var answer *offrampv1.AcceptFindingResponse
	err = conn.decide(cmd.Context(), func(ctx context.Context, client offrampv1.FleetServiceClient) error {
		answer, err = client.AcceptFinding(ctx, &a.request)
		return conn.explain("accepting the finding", err)
	})
	if err != nil {
		return err
	}
	return a.output.print(cmd.OutOrStdout(), answer, func(w io.Writer) error {
		return render.Acceptances(w, []*offrampv1.Acceptance{answer.GetAcceptance()}, now)
	})
}

func (a *accepting) takeBack(cmd *cobra.Command, conn *connection) error {
	err := conn.decide(cmd.Context(), func(ctx context.Context, client offrampv1.FleetServiceClient) error {
		_, err := client.WithdrawAcceptance(ctx, &offrampv1.WithdrawAcceptanceRequest{Id: a.withdraw})
		return conn.explain("taking the acceptance back", err)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Acceptance %s is taken back; the finding counts again.\n", render.Clean(a.withdraw))
	return err
}

func (a *accepting) printList(cmd *cobra.Command, conn *connection, now time.Time) error {
	var answer *offrampv1.ListAcceptancesResponse
	err := conn.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := conn.deadline(cmd.Context())
		defer cancel()
		var err error
		answer, err = client.ListAcceptances(ctx, &offrampv1.ListAcceptancesRequest{})
		return conn.explain("asking for accepted findings", err)
	})
	if err != nil {
		return err
	}
	return a.output.print(cmd.OutOrStdout(), answer, func(w io.Writer) error {
		return render.Acceptances(w, answer.GetAcceptances(), now)
	})
}
