package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/orders"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// conversation is one stream that was welcomed.
type conversation struct {
	*peer
	stream   grpc.BidiStreamingClient[offrampv1.ConnectRequest, offrampv1.ConnectResponse]
	welcome  *offrampv1.Welcome
	interval time.Duration
	has      sent
	// outbox is what the receiving side wants to have sent: only one goroutine may send.
	outbox chan *offrampv1.ConnectRequest
	// questions wait for the one goroutine that answers them; pending are those and the one being answered.
	questions chan *question
	pending   pending
	// orders is what this stream hears and says of orders.
	orders *orders.Feed
}

// hold keeps the conversation going until the stream or ctx ends. It returns when all its goroutines have:
// the first that fails ends ctx for the others, and gRPC ends the stream when sending fails.
func (c *conversation) hold(ctx context.Context) error {
	feed, err := c.book.Feed(ctx)
	if err != nil {
		return err
	}
	defer feed.Close()
	c.orders = feed
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.sendUpdates(ctx, feed) })
	group.Go(func() error { return c.send(ctx) })
	group.Go(func() error { return c.receive(ctx) })
	group.Go(func() error { return c.answerQuestions(ctx) })
	return group.Wait()
}

// send is the only one that sends: the first report, then what changed, heartbeats and answers.
func (c *conversation) send(ctx context.Context) error {
	defer func() { _ = c.stream.CloseSend() }()
	taken, newer := c.board.look()
	if err := c.report(taken, true); err != nil {
		return err
	}
	// The first one comes at a random time: agents that came together need not beat together.
	beat := time.NewTimer(time.Duration(c.config.Rand() * float64(c.interval)))
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-newer:
			taken, newer = c.board.look()
			err = c.report(taken, false)
		case <-beat.C:
			err = c.beat(taken)
			beat.Reset(c.interval - time.Duration(c.config.Rand()*0.1*float64(c.interval)))
		case message := <-c.outbox:
			err = c.sendOne(message)
		}
		if err != nil {
			return err
		}
	}
}

// report sends what the aggregator lacks. The first report is due also when that is nothing.
func (c *conversation) report(taken *snapshot, first bool) error {
	reports := c.has.reports(taken)
	if first && len(reports) == 0 {
		reports = []*offrampv1.Report{{}}
	}
	for _, report := range reports {
		if err := c.sendOne(&offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Report{Report: report}}); err != nil {
			return err
		}
	}
	return nil
}

// beat vouches for the snapshot, unless it is so old that nobody can.
func (c *conversation) beat(taken *snapshot) error {
	now := c.config.Now()
	if age := now.Sub(taken.at); age > c.config.limits.stale {
		c.log.Error("no heartbeat: the node could not be read for too long", "last_scan_ago", age)
		return nil
	}
	message := heartbeat(taken)
	message.Now = timestamppb.New(now)
	return c.sendOne(&offrampv1.ConnectRequest{Message: &offrampv1.ConnectRequest_Heartbeat{Heartbeat: message}})
}

// sendOne sends. Where that says EOF the stream has ended and the receiving side knows why: its error is the one that counts.
func (c *conversation) sendOne(message *offrampv1.ConnectRequest) error {
	if err := c.stream.Send(message); !errors.Is(err, io.EOF) {
		return err
	}
	<-c.stream.Context().Done()
	return nil
}

// receive reads until the stream ends.
func (c *conversation) receive(ctx context.Context) error {
	for {
		message, err := c.stream.Recv()
		if err != nil {
			return closed(err)
		}
		if err := c.handle(ctx, message); err != nil {
			return err
		}
	}
}

func (c *conversation) handle(ctx context.Context, message *offrampv1.ConnectResponse) error {
	switch body := message.GetMessage().(type) {
	case *offrampv1.ConnectResponse_DetailRequest:
		return c.ask(ctx, body.DetailRequest)
	case *offrampv1.ConnectResponse_DetailCancel:
		c.pending.callOff(body.DetailCancel.GetId())
		return nil
	case *offrampv1.ConnectResponse_Order:
		c.orders.Order(body.Order)
		return nil
	case *offrampv1.ConnectResponse_OrderAcknowledgement:
		c.orders.Acknowledge(body.OrderAcknowledgement.GetId())
		return nil
	case *offrampv1.ConnectResponse_Welcome:
		return errors.New("the aggregator says Welcome twice")
	default:
		// A newer aggregator may say what this agent does not know; it must do without an answer.
		return nil
	}
}

// put hands a message to the sending side.
func (c *conversation) put(ctx context.Context, message *offrampv1.ConnectRequest) error {
	select {
	case c.outbox <- message:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closed names the end of a stream that the aggregator closed without a complaint.
func closed(err error) error {
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the aggregator closed the stream")
	}
	return fmt.Errorf("the stream to the aggregator: %w", err)
}
