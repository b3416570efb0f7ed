package orders

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	minID, maxID = 16, 64
	// maxCaller, maxToken and maxBackup bound words of an order, in bytes. They end up in records and logs.
	maxCaller, maxToken, maxBackup = 1024, 256, 64
)

// CheckID says what is wrong with the id of an order. It names a file, so that its form matters.
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

// checkForm says what is wrong with an order whatever the node thinks of it. Such an order is nowhere recorded: the same
// order gets the same answer for ever.
func checkForm(order *offrampv1.Order) error {
	if err := CheckID(order.GetId()); err != nil {
		return err
	}
	switch {
	case len(order.GetCaller()) > maxCaller || len(order.GetTokenId()) > maxToken || len(order.GetBackupId()) > maxBackup:
		return errors.New("its caller, token id or backup id is longer than may be")
	case order.GetDeadline().CheckValid() != nil || order.GetSentAt().CheckValid() != nil:
		return errors.New("it does not say when it was sent and until when it holds")
	case order.GetDeadline().AsTime().Sub(order.GetSentAt().AsTime()) > maxAllowed:
		return fmt.Errorf("it holds for longer than %s", maxAllowed)
	}
	return checkContent(order)
}

func checkContent(order *offrampv1.Order) error {
	if _, known := offrampv1.Target_name[int32(order.GetTarget())]; !known {
		return fmt.Errorf("this agent knows no target %d", order.GetTarget())
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
		return fmt.Errorf("this agent knows no order of kind %d", order.GetKind())
	}
	return nil
}

// same reports whether two orders of one id want the same. Who sent it, when and until when does not matter.
func same(a, b *offrampv1.Order) bool {
	return a.GetKind() == b.GetKind() && a.GetTarget() == b.GetTarget() &&
		bytes.Equal(a.GetPlanDigest(), b.GetPlanDigest()) && a.GetBackupId() == b.GetBackupId()
}

// changes reports whether an order may change the node.
func changes(order *offrampv1.Order) bool {
	return order.GetKind() != offrampv1.OrderKind_ORDER_KIND_PLAN
}
