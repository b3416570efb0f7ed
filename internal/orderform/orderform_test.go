package orderform

import (
	"strings"
	"testing"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestCheckID(t *testing.T) {
	for id, good := range map[string]bool{
		"0123456789abcdef": true, "order-2026-11-30-x": true, strings.Repeat("a", 64): true,
		"": false, "0123456789abcde": false, strings.Repeat("a", 65): false, "0123456789ABCDEF": false,
		"../../../etc/passwd": false, "0123456789abcde\n": false, "0123456789abcd/f": false, "ä123456789abcdef": false,
	} {
		if err := CheckID(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestSame(t *testing.T) {
	order := &offrampv1.Order{Kind: offrampv1.OrderKind_ORDER_KIND_APPLY, Target: offrampv1.Target_TARGET_NFTABLES, PlanDigest: []byte{1}}
	for _, other := range []*offrampv1.Order{
		{Kind: offrampv1.OrderKind_ORDER_KIND_PLAN, Target: offrampv1.Target_TARGET_NFTABLES, PlanDigest: []byte{1}},
		{Kind: offrampv1.OrderKind_ORDER_KIND_APPLY, Target: offrampv1.Target_TARGET_IPTABLES, PlanDigest: []byte{1}},
		{Kind: offrampv1.OrderKind_ORDER_KIND_APPLY, Target: offrampv1.Target_TARGET_NFTABLES, PlanDigest: []byte{2}},
		{Kind: offrampv1.OrderKind_ORDER_KIND_APPLY, Target: offrampv1.Target_TARGET_NFTABLES, PlanDigest: []byte{1}, BackupId: "b"},
	} {
		if Same(order, other) {
			t.Errorf("%v is taken for %v", other, order)
		}
	}
	if !Same(order, &offrampv1.Order{
		Kind: order.GetKind(), Target: order.GetTarget(), PlanDigest: []byte{1}, Caller: "another", TokenId: "t",
	}) {
		t.Error("who asks makes it another order")
	}
}
