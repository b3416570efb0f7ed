package serve

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/aggregator/audit"
	"offramp.dev/offramp/aggregator/auth"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// called is a call of jane's, as the guard hands it on.
type called struct {
	grpc.ServerTransportStream
	method string
}

func (c called) Method() string { return c.method }

func janeCalls(t *testing.T, method string) context.Context {
	t.Helper()
	ctx := grpc.NewContextWithServerTransportStream(t.Context(), called{method: method})
	return auth.NewContext(ctx, auth.Caller{Kind: auth.Person, Name: "jane", Claimed: "Jane", TokenID: "t-1"})
}

const accepted, withdrawn = "/offramp.v1.FleetService/AcceptFinding", "/offramp.v1.FleetService/WithdrawAcceptance"

func acceptRequest(until time.Time) *v1.AcceptFindingRequest {
	return &v1.AcceptFindingRequest{FindingId: "kernel-too-old", Selector: "pool=blue", Reason: "rebuilt next week", Until: timestamppb.New(until)}
}

// Who accepted what and took it back is written down, and so is what came to nothing.
func TestAcceptancesAreAudited(t *testing.T) {
	k, p := webCluster(), &paper{}
	q := &questions{store: inCluster(t, k).store, around: k, acceptances: k, audit: &auditor{log: audit.New(p, quiet())}}
	until := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	accept := func(request *v1.AcceptFindingRequest, want codes.Code) {
		t.Helper()
		if _, err := q.AcceptFinding(janeCalls(t, accepted), request); status.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	withdraw := func(id string, want codes.Code) {
		t.Helper()
		if _, err := q.WithdrawAcceptance(janeCalls(t, withdrawn), &v1.WithdrawAcceptanceRequest{Id: id}); status.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	accept(acceptRequest(until), codes.OK)
	accept(&v1.AcceptFindingRequest{FindingId: "kernel-too-old", Reason: strings.Repeat("x", 5000)}, codes.InvalidArgument)
	withdraw("id-1", codes.OK)
	withdraw("other", codes.NotFound)
	k.fails = errors.New("the API server is away")
	accept(acceptRequest(until), codes.Unavailable)

	whole := audit.Record{
		Event: "acceptance", Caller: "jane", Claimed: "Jane", TokenID: "t-1", Method: accepted, Acceptance: "id-1", Finding: "kernel-too-old",
		Selector: "pool=blue", Reason: "rebuilt next week", Until: until.Format(time.RFC3339), Outcome: "done",
	}
	taken, novel, other, away := whole, whole, whole, whole
	taken.Method = withdrawn
	novel.Acceptance, novel.Selector, novel.Until, novel.Reason, novel.Outcome = "", "", "", strings.Repeat("x", 500), "INVALID_ARGUMENT"
	other.Method, other.Acceptance, other.Outcome = withdrawn, "other", "NOT_FOUND"
	other.Finding, other.Selector, other.Reason, other.Until = "", "", "", ""
	away.Acceptance, away.Outcome = "", "UNAVAILABLE"
	got := p.records(t)
	for _, record := range got {
		if time.Since(record.Time) > time.Minute || record.Seconds < 0 || (record.Outcome == "done") != (record.Message == "") {
			t.Errorf("%+v", record)
		}
	}
	want := []audit.Record{whole, novel, taken, other, away}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(audit.Record{}, "Time", "Seconds", "Message")); diff != "" {
		t.Error(diff)
	}
}

// The server writes them where it writes the others.
func TestAcceptancesAreAuditedByTheServer(t *testing.T) {
	p := &paper{}
	l := inCluster(t, webCluster(), audited(p))
	if _, err := l.client.AcceptFinding(t.Context(), acceptRequest(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.WithdrawAcceptance(t.Context(), &v1.WithdrawAcceptanceRequest{Id: "id-1"}); err != nil {
		t.Fatal(err)
	}
	got := p.records(t)
	if len(got) != 2 || got[0].Method != accepted || got[1].Method != withdrawn || got[1].Caller != unauthenticated || got[1].Reason != "rebuilt next week" {
		t.Errorf("%+v", got)
	}
}
