package auth

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// running runs an authenticator inside a bubble until the test's end.
func running(t *testing.T, tokens *Tokens) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { tokens.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// connect is what the guard does for a stream; ended holds why the stream was ended.
func connect(t *testing.T, tokens *Tokens, text string) (stop func(), ended *atomic.Pointer[error]) {
	t.Helper()
	caller, err := tokens.Authenticate(withToken(t.Context(), text))
	if err != nil {
		t.Fatal(err)
	}
	ended = &atomic.Pointer[error]{}
	return caller.follow(func(cause error) { ended.Store(&cause) }), ended
}

// 5,000 agents come back at once: none waits, and the API server sees no more than the rate.
func TestManyReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, rate = 5000, 20
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(func(c *TokensConfig) { c.ReviewsPerSecond = rate; c.ReviewEvery = time.Hour })
		running(t, tokens)
		all := make([]string, agents)
		for i := range all {
			all[i] = cluster.mint(token{pod: fmt.Sprintf("pod-%d", i), node: fmt.Sprintf("node-%d", i), life: 2 * time.Hour})
		}
		began := time.Now()
		for _, text := range all {
			// Twice: on the second day the same agent comes again with the same token.
			stop, _ := connect(t, tokens, text)
			stop()
			stop, _ = connect(t, tokens, text)
			defer stop()
		}
		// The bubble's clock stands still for as long as nobody waits.
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the agents waited %s", waited)
		}
		time.Sleep(10 * time.Second)
		if got := cluster.asked("review"); got < 9*rate || got > 10*rate+1 {
			t.Errorf("%d reviews in 10 s, the rate is %d a second", got, rate)
		}
		time.Sleep(agents / rate * time.Second)
		if got := cluster.asked("review"); got != agents {
			t.Errorf("%d reviews of %d tokens", got, agents)
		}
		cluster.mu.Lock()
		defer cluster.mu.Unlock()
		for i := rate; i < len(cluster.times); i++ {
			if took := cluster.times[i].Sub(cluster.times[i-rate]); took < 990*time.Millisecond {
				t.Fatalf("%d reviews within %s", rate+1, took)
			}
		}
	})
}

// A pod that is deleted: its stream ends within minutes, and the token does not come back. Others stay.
func TestDeletedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		running(t, tokens)
		victim := cluster.mint(token{pod: "victim"})
		stop, ended := connect(t, tokens, victim)
		defer stop()
		stopOther, other := connect(t, tokens, cluster.mint(token{pod: "other", node: "node-b"}))
		defer stopOther()
		time.Sleep(10 * time.Second)
		cluster.set(func() { cluster.revoked["victim"] = true })
		time.Sleep(2*time.Minute + time.Second)
		if ended.Load() == nil || status.Code(*ended.Load()) != codes.Unauthenticated {
			t.Errorf("the stream of a deleted pod goes on")
		}
		if _, err := tokens.Authenticate(withToken(t.Context(), victim)); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the token of a deleted pod: %v", err)
		}
		if other.Load() != nil {
			t.Errorf("another stream ended: %v", *other.Load())
		}
		// Refused tokens are not asked about again.
		before := cluster.asked("review")
		time.Sleep(10*time.Minute + time.Second)
		if got := cluster.asked("review") - before; got != 5 {
			t.Errorf("%d reviews in ten minutes for one connected agent, want one in two minutes", got)
		}
	})
}

// A review that says of another user that it is he ends the stream too.
func TestReviewNamesAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		tokens.reviews.ask = func(context.Context, string) (Review, error) {
			return Review{Authenticated: true, User: User{Name: operator}}, nil
		}
		running(t, tokens)
		stop, ended := connect(t, tokens, cluster.mint(token{}))
		defer stop()
		time.Sleep(time.Second)
		if ended.Load() == nil {
			t.Error("the stream goes on")
		}
	})
}

// An API server that is down, or hangs, ends no stream; it is asked again and again, never faster than the rate.
func TestReviewsWithoutTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		running(t, tokens)
		cluster.set(func() { cluster.down = errors.New("down") })
		stop, ended := connect(t, tokens, cluster.mint(token{}))
		defer stop()
		time.Sleep(10 * time.Minute)
		if got := cluster.asked("review"); got < 15 || got > 25 {
			t.Errorf("%d attempts in ten minutes", got)
		}
		hang := make(chan struct{})
		cluster.set(func() { cluster.down, cluster.hang = nil, hang })
		time.Sleep(10 * time.Minute)
		if ended.Load() != nil {
			t.Errorf("the stream ended: %v", *ended.Load())
		}
		close(hang)
	})
}

// A token is asked about only while somebody is connected with it, and once however many streams it has.
func TestReviewsFollowStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newAPIServer(t)
		tokens := cluster.newTokens(nil)
		running(t, tokens)
		text := cluster.mint(token{life: 24 * time.Hour})
		var stops []func()
		for range 10 {
			stop, _ := connect(t, tokens, text)
			stops = append(stops, stop)
		}
		time.Sleep(time.Second)
		if got := cluster.asked("review"); got != 1 {
			t.Errorf("%d reviews of one token with ten streams", got)
		}
		for _, stop := range stops {
			stop()
		}
		time.Sleep(time.Hour)
		if got := cluster.asked("review"); got != 1 {
			t.Errorf("%d reviews of a token that nobody is connected with", got)
		}
		stop, _ := connect(t, tokens, text)
		defer stop()
		time.Sleep(time.Second)
		if got := cluster.asked("review"); got != 2 {
			t.Errorf("%d reviews after it came back", got)
		}
	})
}

// Expired tokens are forgotten, whatever came of them.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newAPIServer(t).newTokens(nil)
		for i := range 5000 {
			var key tokenKey
			key[0], key[1] = byte(i), byte(i>>8)
			tokens.reviews.follow(key, "x", "y", time.Now().Add(time.Minute), func(error) {})()
			if i%100 == 0 {
				time.Sleep(time.Minute)
			}
		}
		if got := len(tokens.reviews.tokens); got > 3000 {
			t.Errorf("%d tokens are remembered, nearly all of them expired", got)
		}
	})
}
