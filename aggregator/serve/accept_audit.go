package serve

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/auth"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// accepting returns what writes the line of a call that accepts a finding, or withdraws that, when it has ended.
func (a *auditor) accepting(ctx context.Context) (ended func(*offrampv1.Acceptance, error)) {
	began := time.Now()
	caller, _ := auth.FromContext(ctx)
	record := recordOf(ctx, "acceptance", caller)
	return func(acceptance *offrampv1.Acceptance, err error) {
		record.Acceptance, record.Finding = shortened(acceptance.GetId()), shortened(acceptance.GetFindingId())
		record.Selector, record.Reason = shortened(acceptance.GetSelector()), cut(acceptance.GetReason(), maxReason)
		if until := acceptance.GetUntil(); until.IsValid() {
			record.Until = until.AsTime().Format(time.RFC3339)
		}
		record.Outcome = "done"
		if err != nil {
			told := status.Convert(err)
			record.Outcome, record.Message = codeWord(told.Code()), told.Message()
		}
		record.Time, record.Seconds = time.Now(), time.Since(began).Seconds()
		a.log.Write(record)
	}
}
