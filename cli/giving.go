package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/internal/orderform"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	defaultAllowed = 5 * time.Minute
	// untilPlaced is how long an aggregator, or the node's way to one, is waited for before an order is given up that nobody
	// has taken.
	untilPlaced = 15 * time.Second
	// lateness is how much longer than the node may take an answer is waited for.
	lateness = 15 * time.Second
	// silence is how long an aggregator may say nothing before the order is asked for again, of another one where there is one:
	// that does no harm. unheard is the same before it has said that it passed the order on.
	silence, unheard = 30 * time.Second, 5 * time.Second
	// firstPause and maxPause bound the time between two attempts.
	firstPause, maxPause = 250 * time.Millisecond, 3 * time.Second
)

// Exit codes of orders, beside those that the node gives.
const (
	exitRemains = 3
	exitUnknown = 4
)

// giving is what all commands that give orders share.
type giving struct {
	*connection
	also    []string
	allowed time.Duration
	id      string
	stderr  io.Writer
}

func (g *giving) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&g.also, "also-aggregator", nil, "further addresses of aggregators to go on with when the connection breaks; may be repeated")
	// It hides the --timeout of questions: a clean-up takes longer than an answer.
	flags.DurationVar(&g.allowed, "timeout", defaultAllowed, "how long the node may take, up to 1h")
	flags.StringVar(&g.id, "order", "", "go on with the order of this id, instead of giving a new one")
}

func (g *giving) prepare(cmd *cobra.Command) error {
	g.stderr = cmd.ErrOrStderr()
	if g.allowed <= 0 || g.allowed > orderform.MaxAllowed {
		return program.Usagef("--timeout is up to %s, not %s", orderform.MaxAllowed, g.allowed)
	}
	if g.id != "" {
		if err := orderform.CheckID(g.id); err != nil {
			return program.Usagef("--order: %w", err)
		}
	}
	for _, address := range g.also {
		other := *g.connection
		other.aggregator = address
		if err := other.check(); err != nil {
			return err
		}
	}
	return g.check()
}

// newID is the id of a new order: 26 letters and digits that nobody guesses.
func newID() string { return strings.ToLower(rand.Text()) }

// said is one message of a call.
type said interface {
	GetProgress() *offrampv1.OrderProgress
	GetResult() *offrampv1.OrderResult
}

// answers is what comes of one call for an order.
type answers struct {
	grpc.ClientStream
	recv func() (said, error)
}

// caller makes a call; timeout is what the node may still take.
type caller func(ctx context.Context, client offrampv1.CleanupServiceClient, timeout *durationpb.Duration) (*answers, error)

// opened makes a call of any kind of stream.
func opened[T any, P interface {
	*T
	said
}](stream grpc.ServerStreamingClient[T], err error) (*answers, error) {
	if err != nil {
		return nil, err
	}
	return &answers{stream, func() (said, error) {
		message, err := stream.Recv()
		return P(message), err
	}}, nil
}

// order is one order on its way.
type order struct {
	*giving
	id string
	// doing says what was asked for, again how to ask again.
	doing, again string
	call         caller
	// placed says that the node has the order, or may have it: an aggregator fell silent before it said either.
	placed   bool
	progress *progress
	// silence and unheard are the constants, but for tests.
	silence, unheard time.Duration
}

// give gives an order and follows it to its result, over as many connections as that takes.
func (g *giving) give(ctx context.Context, o *order) (*offrampv1.OrderResult, error) {
	o.giving, o.progress, o.silence, o.unheard = g, newProgress(g.stderr), silence, unheard
	return o.deliver(ctx)
}

func (o *order) deliver(ctx context.Context) (*offrampv1.OrderResult, error) {
	g := o.giving
	began, addresses := time.Now(), append([]string{g.aggregator}, g.also...)
	pause, told := firstPause, ""
	for attempt := 0; ; attempt++ {
		at := *g.connection
		at.aggregator, at.timeout = addresses[attempt%len(addresses)], g.allowed
		result, err := o.attempt(ctx, &at, g.allowed-time.Since(began))
		switch {
		case result != nil:
			return result, nil
		case ctx.Err() != nil:
			return nil, o.unknown("interrupted")
		case !o.goesOn(err, time.Since(began), attempt+1 < len(addresses)):
			return nil, o.failed(&at, err)
		}
		if why := render.Clean(status.Convert(err).Message()); why != told {
			o.progress.say("%s; asking again", why)
			told = why
		}
		if !sleep(ctx, pause) {
			return nil, o.unknown("interrupted")
		}
		pause = min(2*pause, maxPause)
	}
}

// goesOn reports whether it is worth asking again; others says that there are addresses that were not asked yet.
func (o *order) goesOn(err error, took time.Duration, others bool) bool {
	if status.Code(err) != codes.Unavailable {
		return false
	}
	if o.placed || others {
		return took < o.allowed
	}
	return took < min(untilPlaced, o.allowed)
}

// failed says that an order did not come to its end, or that it is not known.
func (o *order) failed(at *connection, err error) error {
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable && o.placed {
		return o.unknown(at.explain(o.doing, err).Error())
	}
	var usage program.UsageError
	if _, told := status.FromError(err); !told || errors.As(err, &usage) {
		return err
	}
	return at.explain(o.doing, err)
}

// unknown says how to look again.
func (o *order) unknown(why string) error {
	o.progress.say("%s. The node goes on with what it has begun. To see how it ended:\n  %s --order %s", why, o.again, o.id)
	return program.Code(exitUnknown)
}

// attempt makes one call, to one address.
func (o *order) attempt(ctx context.Context, at *connection, left time.Duration) (*offrampv1.OrderResult, error) {
	left = max(left, time.Second)
	ctx, cancel := context.WithTimeout(ctx, left+lateness)
	defer cancel()
	ctx, hush := context.WithCancelCause(ctx)
	defer hush(nil)
	var result *offrampv1.OrderResult
	err := at.order(func(client offrampv1.CleanupServiceClient) error {
		call, err := o.call(ctx, client, durationpb.New(left))
		if err != nil {
			return err
		}
		// Only now: what comes before it may ask a person to log in.
		silent := time.AfterFunc(o.unheard, func() { hush(errSilent) })
		defer silent.Stop()
		result, err = o.follow(call, silent)
		return err
	})
	if errors.Is(context.Cause(ctx), errSilent) && result == nil {
		err = status.Error(codes.Unavailable, errSilent.Error())
	}
	return result, err
}

var errSilent = errors.New("the aggregator says nothing")

func (o *order) follow(call *answers, silent *time.Timer) (*offrampv1.OrderResult, error) {
	header, err := call.Header()
	// The order was sent. Where no aggregator answered, it is not known how far it came.
	o.placed = o.placed || isPlaced(header, o.id) || len(header) == 0 && len(call.Trailer()) == 0
	if err != nil {
		return nil, err
	}
	for {
		silent.Reset(o.silence)
		message, err := call.recv()
		if errors.Is(err, io.EOF) {
			return nil, status.Error(codes.Unavailable, "the aggregator ended the call without a result")
		}
		if err != nil {
			return nil, err
		}
		if result := message.GetResult(); result != nil {
			o.progress.end()
			return result, nil
		}
		o.progress.step(message.GetProgress())
	}
}

func isPlaced(header metadata.MD, id string) bool {
	values := header.Get(orderform.PlacedKey)
	return len(values) == 1 && values[0] == id
}

// exit is the exit code of a result. The node says it; what does not fit together is an error.
func exit(result *offrampv1.OrderResult) error {
	code := result.GetExitCode()
	if code > exitUnknown || code == 0 && result.GetOutcome() != offrampv1.OrderOutcome_ORDER_OUTCOME_DONE {
		return fmt.Errorf("order %s: %s", result.GetId(), render.Clean(result.GetMessage()))
	}
	return program.Code(int(code))
}

func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
