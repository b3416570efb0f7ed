package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

const (
	// keysEvery is how often the keys are read anew: a key that the cluster withdraws is trusted for as long at most.
	keysEvery = 5 * time.Minute
	// keysLimit bounds one reading.
	keysLimit = 10 * time.Second
	// unknownKeyEvery is how often a token with an unknown key makes the keys be read at once: anybody can make up such tokens.
	unknownKeyEvery = 10 * time.Second
)

// keys are the cluster's published keys, held and renewed.
type keys struct {
	api     API
	issuers []string // accepted beside the published one
	log     *slog.Logger

	flight  singleflight.Group
	limiter *rate.Limiter

	mu   sync.Mutex
	ring *keyring
}

func newKeys(api API, issuers []string, log *slog.Logger) *keys {
	return &keys{api: api, issuers: issuers, log: log, limiter: rate.NewLimiter(rate.Every(unknownKeyEvery), 1)}
}

// verify checks a token with the keys as they are known; an unknown one makes them be read again, at a bounded rate.
func (k *keys) verify(ctx context.Context, token, audience string, now time.Time) (*claims, error) {
	told, err := k.current().verify(token, audience, now)
	if !errors.Is(err, errUnknownKey) || !k.limiter.Allow() {
		return told, err
	}
	if failed := k.refresh(ctx); failed != nil {
		k.log.Error("the cluster's token keys cannot be read; the ones before stay", "error", failed)
		return nil, err
	}
	return k.current().verify(token, audience, now)
}

func (k *keys) current() *keyring {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring == nil {
		return &keyring{}
	}
	return k.ring
}

// refresh reads the keys, once for everybody who wants that at the same time.
func (k *keys) refresh(ctx context.Context) error {
	done := k.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysLimit)
		defer cancel()
		return nil, k.read(ctx)
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *keys) read(ctx context.Context) error {
	published, err := k.api.Published(ctx)
	if err != nil {
		return err
	}
	ring := &keyring{issuers: append([]string{published.Issuer}, k.issuers...)}
	if err := json.Unmarshal(published.Keys, &ring.keys); err != nil {
		return fmt.Errorf("read the cluster's key set: %w", err)
	}
	if published.Issuer == "" || len(ring.keys.Keys) == 0 {
		return errors.New("the cluster publishes no issuer or no key")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ring = ring
	return nil
}

// run keeps the keys fresh until ctx ends.
func (k *keys) run(ctx context.Context) {
	ticker := time.NewTicker(keysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := k.refresh(ctx); err != nil && ctx.Err() == nil {
			k.log.Error("the cluster's token keys cannot be read; the ones before stay", "error", err)
		}
	}
}
