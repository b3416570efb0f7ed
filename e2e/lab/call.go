package lab

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"offramp.dev/offramp/e2e/lab/wire"
)

// call is one request on its way.
type call struct {
	guest   *Guest
	conn    net.Conn
	enc     *gob.Encoder
	dec     *gob.Decoder
	release func()
	ctx     context.Context //nolint:containedctx // it is the request's, and lives as long
}

// call sends a request. The connection is closed when ctx ends, which ends the request in the guest.
func (g *Guest) call(ctx context.Context, request wire.Request) (*call, error) {
	if g.machine.alive.Err() != nil {
		return nil, g.explain(ctx, errors.New("nothing to talk to"))
	}
	conn, err := g.lab.Dial(ctx, "tcp", net.JoinHostPort(address(controlNetwork, g.number), strconv.Itoa(wire.Port)))
	if err != nil {
		return nil, g.explain(ctx, fmt.Errorf("connecting to %s: %w", g.Name, err))
	}
	c := &call{guest: g, conn: conn, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn), ctx: ctx}
	// A machine that was switched off says nothing any more, and so the connection would wait for ever.
	hangUp := func() { _ = conn.Close() }
	ofRequest := context.AfterFunc(ctx, hangUp)
	ofMachine := context.AfterFunc(g.machine.alive, hangUp) //nolint:contextcheck // the machine's life is not the request's
	c.release = func() { ofRequest(); ofMachine() }
	if err := c.enc.Encode(request); err != nil {
		c.release()
		_ = conn.Close()
		return nil, g.explain(ctx, fmt.Errorf("sending a request to %s: %w", g.Name, err))
	}
	return c, nil
}

// finish takes replies until the last one.
func (c *call) finish(stdout, stderr io.Writer) (int, error) {
	defer func() {
		c.release()
		_ = c.conn.Close()
	}()
	for {
		var reply wire.Reply
		if err := c.dec.Decode(&reply); err != nil {
			return 0, c.guest.explain(c.ctx, fmt.Errorf("waiting for %s: %w", c.guest.Name, err))
		}
		for _, piece := range []struct {
			w    io.Writer
			data []byte
		}{{stdout, reply.Stdout}, {stderr, reply.Stderr}} {
			if piece.w == nil || len(piece.data) == 0 {
				continue
			}
			if _, err := piece.w.Write(piece.data); err != nil {
				return 0, fmt.Errorf("writing a guest's output: %w", err)
			}
		}
		if reply.Done {
			return reply.Exit, asError(c.guest.Name, reply.Error)
		}
	}
}

func asError(guest, text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("on %s: %s", guest, text)
}

// explain adds to a connection's error what caused it: the end of ctx or of the guest.
func (g *Guest) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	select {
	case <-g.machine.alive.Done():
		return fmt.Errorf("the virtual machine %s has ended: %w; its console said:\n%s", g.Name, err, g.machine.console.tail())
	default:
		return err
	}
}
