package main

import (
	"context"
	"encoding/hex"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/metrics"
	"offramp.dev/offramp/agent/orders"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// orderBook decides on orders from aggregators, and has those that are obeyed done on this node.
func (p parts) orderBook(r reporting, m *metrics.Metrics) (*orders.Book, error) {
	config := r.config
	config.History = false // an order is judged by a reading of its own, as a clean-up on the node is
	noted := p.noted(p.executor(config.Host, r.stateDir), noting{
		config: config, stateDir: r.stateDir, connect: r.connect, told: m.Finished, log: r.log,
	})
	hands := orders.Hands{Executor: noted, Read: p.reading(config, r.stateDir, defaultReading), Now: config.Host.Now}
	return orders.Open(orders.Config{
		Node: config.Node, Policy: r.cleanup, StateDir: r.stateDir, Storage: durable,
		Record: ordersToAudit(r, p.audit(r.stateDir)),
		Work:   hands.Work, Interrupted: orders.Journal(r.stateDir), Now: config.Host.Now, Log: r.log,
	})
}

// ordersToAudit writes the orders into the audit log that never came as far as a clean-up, or whose clean-up could not say how
// it ended; of the others the clean-up itself has its line. An agent that takes no orders writes nothing to the disk.
func ordersToAudit(r reporting, log audit.Keeper) func(orders.Entry) {
	outcomes := map[offrampv1.OrderOutcome]string{
		offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED: audit.OutcomeRefused, offrampv1.OrderOutcome_ORDER_OUTCOME_INTERRUPTED: audit.OutcomeUnknown,
	}
	methods := map[offrampv1.OrderKind]string{
		offrampv1.OrderKind_ORDER_KIND_APPLY: audit.MethodApply, offrampv1.OrderKind_ORDER_KIND_RESTORE: audit.MethodRestore,
	}
	return func(e orders.Entry) {
		method, outcome := methods[e.Order.GetKind()], outcomes[e.Outcome]
		worked := e.Event == "ended" && e.Took > 0
		if r.cleanup == orders.Never || r.stateDir == "" || method == "" || outcome == "" || worked {
			return
		}
		_, err := log.Write(&audit.Entry{
			Time: r.config.Host.Now().UTC(), Node: r.config.Node, Method: method, Outcome: outcome, Caller: e.Order.GetCaller(),
			Order: e.Order.GetId(), TokenID: e.Order.GetTokenId(), PlanDigest: hex.EncodeToString(e.Order.GetPlanDigest()),
			BackupID: e.Order.GetBackupId(), Operations: map[string]int{}, Error: e.Why,
		})
		if err != nil {
			r.log.Error("an order cannot be written to the audit log", "order", e.Order.GetId(), "outcome", outcome, "error", err)
		}
	}
}

// durable asks for no more room than is spare anyway: what a clean-up wants is a guard of its own.
func durable(dir string) error { return cleanup.CheckStorage(dir, 0) }

// obey runs the book beside the stream.
func obey(ctx context.Context, r reporting, book *orders.Book) error {
	if r.cleanup != orders.Never {
		r.log.Info("taking orders", "cleanup", r.cleanup, "state_dir", r.stateDir)
	}
	return book.Run(ctx)
}
