package serve

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/fleet"
)

// Reasons for which the server ends a stream by itself.
var (
	errDraining = errors.New("the aggregator is stopping; come back later")
	errNoHello  = errors.New("no Hello came in time")
	errNoReport = errors.New("no first Report came in time")
	errNotTaken = errors.New("the agent does not take its messages")
	// errOvertaken: what the first Report leaves out is not what is known here any more. The next Welcome names that.
	errOvertaken = errors.New("another stream of this node reported meanwhile; come again")
)

// code gives the status of these reasons and of the fleet's; ok is false for other errors.
func code(err error) (code codes.Code, ok bool) {
	switch {
	case errors.Is(err, errDraining), errors.Is(err, errOvertaken):
		return codes.Unavailable, true
	case errors.Is(err, errNoHello), errors.Is(err, errNoReport), errors.Is(err, errNotTaken):
		return codes.DeadlineExceeded, true
	case errors.Is(err, fleet.ErrReplaced):
		return codes.Aborted, true
	case errors.Is(err, fleet.ErrOutOfOrder):
		return codes.FailedPrecondition, true
	default:
		return codes.OK, false
	}
}

// errNoMessage refuses what came instead of a message.
var errNoMessage = errors.New("a message that cannot be decoded, or of a kind that this aggregator does not know")

// ending turns the error that ended a stream into its status.
func ending(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if c, ours := code(err); ours {
		return status.Error(c, err.Error())
	}
	if _, already := status.FromError(err); already {
		return err
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

func outOfOrder(format string, args ...any) error {
	return fmt.Errorf("%w: %s", fleet.ErrOutOfOrder, fmt.Sprintf(format, args...))
}
