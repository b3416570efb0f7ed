package collect

import (
	"context"
	"errors"
	"time"
)

const (
	// maxReadings bounds how often something that keeps changing is read before it is called inconsistent.
	maxReadings = 8
	// firstPause is how long to wait after the second reading; each wait is twice the one before.
	firstPause = 5 * time.Millisecond
)

// errTorn marks a reading that shows by itself that the state moved meanwhile.
var errTorn = errors.New("it changed while it was read")

// agreed reads until two consecutive readings are equal and returns the later one, with the number of readings.
// It is for kernel interfaces that do not say whether a dump was interrupted (IPVS, ipset).
func agreed[T any](
	ctx context.Context, read func(context.Context) (T, error), equal func(T, T) bool,
) (T, uint32, error) {
	return agreedAfter(ctx, nil, read, equal)
}

// agreedAfter is agreed for a reader that remembers the reading before, nil for none: where nothing changed since then, one
// more is enough.
func agreedAfter[T any](
	ctx context.Context, before *T, read func(context.Context) (T, error), equal func(T, T) bool,
) (T, uint32, error) {
	return repeat(ctx, func(ctx context.Context) (T, error) {
		current, err := read(ctx)
		if err != nil {
			before = nil
			return current, err
		}
		same := before != nil && equal(*before, current)
		before = &current
		if !same {
			return current, errTorn
		}
		return current, nil
	})
}

// repeat reads until a reading is not torn, and returns it with the number of readings.
func repeat[T any](ctx context.Context, read func(context.Context) (T, error)) (T, uint32, error) {
	var none T
	for reading := uint32(1); reading <= maxReadings; reading++ {
		result, err := read(ctx)
		if err == nil {
			return result, reading, nil
		}
		if !errors.Is(err, errTorn) {
			return none, reading, err
		}
		if err := pause(ctx, reading); err != nil {
			return none, reading, err
		}
	}
	return none, maxReadings, errInconsistent
}

// pause waits before the next reading: not at all after the first, since two are needed anyway.
func pause(ctx context.Context, readings uint32) error {
	if readings < 2 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(firstPause << (readings - 2)):
		return nil
	}
}
