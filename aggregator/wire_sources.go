package main

import (
	"time"

	"offramp.dev/offramp/aggregator/audit"
	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/aggregator/metrics"
	"offramp.dev/offramp/aggregator/serve"
	"offramp.dev/offramp/internal/version"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// figures are where metrics come from. It has orders counted from the audit log, so it is to be called before a call is served.
func figures(made *identified, around *around, audited *audit.Log) metrics.Sources {
	orders := metrics.NewOrders()
	audited.Also(orders.Written)
	return metrics.Sources{
		Readiness: func() *offrampv1.GetReadinessResponse {
			return around.store.Readiness(offrampv1.Target_TARGET_NFTABLES, fleet.Filter{}, "")
		},
		Figures:         around.store.Figures,
		ServerVersion:   func() string { return around.Facts().GetServerVersion() },
		ServerExpiry:    func() time.Time { return serve.CertificateExpiry(made.tls) },
		AuthorityExpiry: made.authorityExpiry,
		Refusals:        made.guard.Refusals,
		Orders:          orders,
		Version:         version.Get().Version,
	}
}
