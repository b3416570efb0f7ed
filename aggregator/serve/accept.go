package serve

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/aggregator/auth"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Acceptances keep accepted findings.
type Acceptances interface {
	List() []*offrampv1.Acceptance
	Put(ctx context.Context, acceptance *offrampv1.Acceptance) error
	// Delete reports whether there was one of that id.
	Delete(ctx context.Context, id string) (found bool, err error)
}

// maxReason bounds the reason of an acceptance, in bytes; longestAcceptance how far its end may be away: what is accepted for ever
// is forgotten.
const (
	maxReason         = 500
	longestAcceptance = 366 * 24 * time.Hour
)

var errNowhereToKeep = status.Error(codes.FailedPrecondition, "this aggregator keeps no accepted findings: it does not ask the Kubernetes API")

// AcceptFinding notes that a finding may stay until a date.
func (q *questions) AcceptFinding(ctx context.Context, request *offrampv1.AcceptFindingRequest) (*offrampv1.AcceptFindingResponse, error) {
	acceptance := &offrampv1.Acceptance{
		FindingId: request.GetFindingId(), Selector: request.GetSelector(), Reason: request.GetReason(), Author: author(ctx),
		At: timestamppb.Now(), Until: request.GetUntil(),
	}
	ended := q.audit.accepting(ctx)
	err := q.accept(ctx, request, acceptance)
	ended(acceptance, err)
	if err != nil {
		return nil, err
	}
	return &offrampv1.AcceptFindingResponse{Acceptance: acceptance}, nil
}

// accept keeps an acceptance, which gets its id by that.
func (q *questions) accept(ctx context.Context, request *offrampv1.AcceptFindingRequest, acceptance *offrampv1.Acceptance) error {
	if q.acceptances == nil {
		return errNowhereToKeep
	}
	if err := q.checkAcceptance(request); err != nil {
		return err
	}
	if err := q.acceptances.Put(ctx, acceptance); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// author is who accepts: the proven name, and the one that the caller gives itself.
func author(ctx context.Context) string {
	caller, _ := auth.FromContext(ctx)
	switch {
	case caller.Name == "":
		return unauthenticated
	case caller.Claimed != "":
		return caller.Claimed + " (" + caller.Name + ")"
	default:
		return caller.Name
	}
}

func (q *questions) checkAcceptance(request *offrampv1.AcceptFindingRequest) error {
	if _, known := readiness.Explain(request.GetFindingId()); !known {
		return status.Errorf(codes.InvalidArgument, "there is no finding %.100q", request.GetFindingId())
	}
	if _, err := q.selector(request.GetSelector()); err != nil {
		return err
	}
	if reason := request.GetReason(); reason == "" || len(reason) > maxReason {
		return status.Errorf(codes.InvalidArgument, "an acceptance needs a reason of at most %d bytes", maxReason)
	}
	until := time.Until(request.GetUntil().AsTime())
	if request.GetUntil() == nil || until <= 0 || until > longestAcceptance {
		return status.Error(codes.InvalidArgument, "an acceptance needs an end date, in the future and within a year")
	}
	return nil
}

// WithdrawAcceptance takes an acceptance back.
func (q *questions) WithdrawAcceptance(ctx context.Context, request *offrampv1.WithdrawAcceptanceRequest) (*offrampv1.WithdrawAcceptanceResponse, error) {
	ended := q.audit.accepting(ctx)
	acceptance, err := q.withdraw(ctx, request.GetId())
	ended(acceptance, err)
	if err != nil {
		return nil, err
	}
	return &offrampv1.WithdrawAcceptanceResponse{}, nil
}

// withdraw returns what is known of the acceptance, at least its id, also where it fails.
func (q *questions) withdraw(ctx context.Context, id string) (*offrampv1.Acceptance, error) {
	acceptance := &offrampv1.Acceptance{Id: id}
	if q.acceptances == nil {
		return acceptance, errNowhereToKeep
	}
	// Who reads the audit log later finds it in no list any more.
	for _, kept := range q.acceptances.List() {
		if kept.GetId() == id {
			acceptance = kept
		}
	}
	found, err := q.acceptances.Delete(ctx, id)
	switch {
	case err != nil:
		return acceptance, status.Error(codes.Unavailable, err.Error())
	case !found:
		return acceptance, status.Errorf(codes.NotFound, "there is no acceptance %.100q", id)
	default:
		return acceptance, nil
	}
}

// ListAcceptances lists accepted findings, those whose time is over too.
func (q *questions) ListAcceptances(context.Context, *offrampv1.ListAcceptancesRequest) (*offrampv1.ListAcceptancesResponse, error) {
	if q.acceptances == nil {
		return nil, errNowhereToKeep
	}
	return &offrampv1.ListAcceptancesResponse{Acceptances: q.acceptances.List()}, nil
}
