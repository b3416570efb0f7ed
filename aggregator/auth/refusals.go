package auth

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// How many refusals are logged: what a misled fleet or an attacker makes of them must not fill a disk.
const (
	refusalsPerSecond = 10
	refusalsAtOnce    = 200
)

// refusals logs who was refused what.
type refusals struct {
	log      *slog.Logger
	limiter  *rate.Limiter
	unlogged atomic.Int64
	total    atomic.Int64
	// told, where it is not nil, is told of every refusal that is logged.
	told func(caller Caller, method, node string, err error)
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, limiter: rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)}
}

// refused logs a refusal and returns it. Its line says how many lines before it were left out.
func (r *refusals) refused(ctx context.Context, c *call, err error) error {
	if err == errExpired { //nolint:errorlint // it is never wrapped, and statuses of equal text are equal to errors.Is
		return err
	}
	r.total.Add(1)
	if !r.limiter.Allow() {
		r.unlogged.Add(1)
		return err
	}
	told := status.Convert(err)
	attributes := []any{"method", c.method, "status", told.Code().String(), "reason", told.Message()}
	for _, known := range [][2]string{
		{"caller", c.caller.Name}, {"claimed", c.caller.Claimed}, {"token_id", c.caller.TokenID},
		{"agent_of", c.caller.Node}, {"node", c.node},
	} {
		if known[1] != "" {
			attributes = append(attributes, known[0], known[1])
		}
	}
	if from, ok := peer.FromContext(ctx); ok {
		attributes = append(attributes, "peer", from.Addr.String())
	}
	if left := r.unlogged.Swap(0); left > 0 {
		attributes = append(attributes, "refusals_not_logged", left)
	}
	r.log.Log(ctx, levelOf(told.Code()), "refused", attributes...)
	if r.told != nil {
		r.told(c.caller, c.method, c.node, err)
	}
	return err
}

// levelOf tells a caller's fault from the API server's.
func levelOf(code codes.Code) slog.Level {
	if code == codes.Unavailable {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// Tell has every refusal that is logged told to somebody else too. Call it before the guard is used.
func (g *Guard) Tell(told func(caller Caller, method, node string, err error)) {
	g.refusals.told = told
}

// Refusals is how many calls were refused since the start.
func (g *Guard) Refusals() int64 { return g.refusals.total.Load() }
