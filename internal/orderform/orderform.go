// Package orderform says what form an order has, for both ends: the aggregator that passes it on and the node that takes it.
package orderform

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Bounds of order.proto; sizes are in bytes.
const (
	// MaxAllowed is the longest that an order may take.
	MaxAllowed = time.Hour
	// MaxPart and MaxResult bound the pieces of a result, and the whole.
	MaxPart   = 512 << 10
	MaxResult = 32 << 20
	// MaxCaller bounds the caller's name: it ends up in records and logs.
	MaxCaller = 1024
	// MaxToken bounds the id of a token.
	MaxToken = 256
	// MaxBackup bounds the id of a backup.
	MaxBackup = 64

	minID, maxID = 16, 64
)

// PlacedKey is the metadata key by which an aggregator tells a caller that an order of the id that is its value is under way,
// or over.
const PlacedKey = "offramp-order"

// CheckID says what is wrong with the id of an order. Nodes name files after it, so that its form matters.
func CheckID(id string) error {
	if len(id) < minID || len(id) > maxID {
		return fmt.Errorf("the id of an order has %d to %d bytes, not %d", minID, maxID, len(id))
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("the id of an order has lower-case letters, digits and '-', not %q", c)
		}
	}
	return nil
}

// Check says what is wrong with what an order wants: its id, kind, target, digest and backup, and the length of its words.
func Check(order *offrampv1.Order) error {
	if err := CheckID(order.GetId()); err != nil {
		return err
	}
	if len(order.GetCaller()) > MaxCaller || len(order.GetTokenId()) > MaxToken || len(order.GetBackupId()) > MaxBackup {
		return errors.New("its caller, token id or backup id is longer than may be")
	}
	if _, known := offrampv1.Target_name[int32(order.GetTarget())]; !known {
		return fmt.Errorf("target %d is not known", order.GetTarget())
	}
	targeted := order.GetTarget() != offrampv1.Target_TARGET_UNSPECIFIED
	switch order.GetKind() {
	case offrampv1.OrderKind_ORDER_KIND_PLAN:
		if !targeted || len(order.GetPlanDigest()) > 0 || order.GetBackupId() != "" {
			return errors.New("a plan wants a target and nothing else")
		}
	case offrampv1.OrderKind_ORDER_KIND_APPLY:
		if !targeted || len(order.GetPlanDigest()) != sha256.Size || order.GetBackupId() != "" {
			return fmt.Errorf("an apply wants a target and the %d bytes of a plan's digest", sha256.Size)
		}
	case offrampv1.OrderKind_ORDER_KIND_RESTORE:
		if targeted || len(order.GetPlanDigest()) > 0 {
			return errors.New("a restore wants the id of a backup or nothing")
		}
	default:
		return fmt.Errorf("no order of kind %d is known", order.GetKind())
	}
	return nil
}

// Same reports whether two orders of one id want the same. Who sent it, when and until when does not matter.
func Same(a, b *offrampv1.Order) bool {
	return a.GetKind() == b.GetKind() && a.GetTarget() == b.GetTarget() &&
		bytes.Equal(a.GetPlanDigest(), b.GetPlanDigest()) && a.GetBackupId() == b.GetBackupId()
}

// Changes reports whether an order may change its node.
func Changes(order *offrampv1.Order) bool {
	return order.GetKind() != offrampv1.OrderKind_ORDER_KIND_PLAN
}
