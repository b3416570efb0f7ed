package orders

import (
	"errors"
	"fmt"

	"offramp.dev/offramp/internal/orderform"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// checkForm says what is wrong with an order whatever the node thinks of it. Such an order is nowhere recorded: the same
// order gets the same answer for ever.
func checkForm(taken *offrampv1.Order) error {
	if err := orderform.Check(taken); err != nil {
		return err
	}
	switch {
	case taken.GetDeadline().CheckValid() != nil || taken.GetSentAt().CheckValid() != nil:
		return errors.New("it does not say when it was sent and until when it holds")
	case taken.GetDeadline().AsTime().Sub(taken.GetSentAt().AsTime()) > orderform.MaxAllowed:
		return fmt.Errorf("it holds for longer than %s", orderform.MaxAllowed)
	}
	return nil
}
