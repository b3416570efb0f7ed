package serve

import (
	"cmp"
	"context"
	"encoding/hex"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/audit"
	"offramp.dev/offramp/aggregator/auth"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// auditor writes what became of calls.
type auditor struct {
	log *audit.Log
	// results is told of every result.
	results func(node string, result *offrampv1.OrderResult)
}

// begin returns what writes the line of a call when it has ended.
func (a *auditor) begin(
	ctx context.Context, caller auth.Caller, node string, order *offrampv1.Order,
) (ended func(*offrampv1.OrderResult, error)) {
	began := time.Now()
	record := recordOf(ctx, "order", caller)
	record.Node, record.Order, record.Backup = shortened(node), shortened(order.GetId()), shortened(order.GetBackupId())
	record.PlanDigest, record.Target = hex.EncodeToString(first(order.GetPlanDigest(), 32)), targetWord(order.GetTarget())
	return func(result *offrampv1.OrderResult, err error) {
		record.Time = time.Now()
		record.Seconds = time.Since(began).Seconds()
		switch {
		case result != nil:
			// Also where the caller was gone before the answer arrived.
			a.results(node, result)
			record.Outcome, record.Message = outcomeWord(result), result.GetMessage()
		case err != nil:
			told := status.Convert(err)
			record.Outcome, record.Message = codeWord(told.Code()), told.Message()
		}
		a.log.Write(record)
	}
}

// recordOf is the record of a call that was let through, as far as it is known when it begins.
func recordOf(ctx context.Context, event string, caller auth.Caller) audit.Record {
	method, _ := grpc.Method(ctx)
	return audit.Record{
		Event: event, Caller: cmp.Or(caller.Name, unauthenticated), Claimed: caller.Claimed, TokenID: caller.TokenID, Method: method,
	}
}

// unasked writes a result that came while nobody here waited for it.
func (a *auditor) unasked(node string, result *offrampv1.OrderResult) {
	a.results(node, result)
	a.log.Write(audit.Record{
		Time: time.Now(), Event: "unasked", Node: node, Order: result.GetId(), Outcome: outcomeWord(result),
		PlanDigest: hex.EncodeToString(first(result.GetCleanup().GetPlanDigest(), 32)), Message: result.GetMessage(),
	})
}

// refused writes a call that was not let through.
func (a *auditor) refused(caller auth.Caller, method, node string, err error) {
	told := status.Convert(err)
	a.log.Write(audit.Record{
		Time: time.Now(), Event: "refused", Caller: caller.Name, Claimed: caller.Claimed, TokenID: caller.TokenID,
		Method: method, Node: shortened(node), Outcome: codeWord(told.Code()), Message: told.Message(),
	})
}

func first(bytes []byte, most int) []byte { return bytes[:min(len(bytes), most)] }

// shortened keeps what a caller wrote from filling the log.
func shortened(text string) string { return cut(text, 256) }

func cut(text string, most int) string { return text[:min(len(text), most)] }

func outcomeWord(result *offrampv1.OrderResult) string {
	return strings.ToLower(strings.TrimPrefix(result.GetOutcome().String(), "ORDER_OUTCOME_"))
}

func targetWord(target offrampv1.Target) string {
	if target == offrampv1.Target_TARGET_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(target.String(), "TARGET_"))
}

// codeWord is a status as gRPC's own documents write it: "PERMISSION_DENIED".
func codeWord(code codes.Code) string {
	var word strings.Builder
	if code == codes.Canceled {
		return "CANCELLED" // so spelt in gRPC's documents, and otherwise in Go
	}
	for i, r := range code.String() {
		if i > 0 && r >= 'A' && r <= 'Z' {
			word.WriteByte('_')
		}
		word.WriteRune(r)
	}
	return strings.ToUpper(word.String())
}
