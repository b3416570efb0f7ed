package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// accessKept is how long an answer of the API server's about a person counts.
	accessKept = 10 * time.Second
	// askLimit bounds one question to the API server that a caller waits for.
	askLimit = 5 * time.Second
	// nodeKept is how long the node of a pod is remembered. A pod never moves.
	nodeKept = time.Hour
)

// TokensConfig says whose tokens are taken.
type TokensConfig struct {
	// API answers questions about tokens. Required.
	API API
	// Audience must be among a token's audiences. Required.
	Audience string
	// Namespace is Offramp's. Tokens of other namespaces are refused. Required.
	Namespace string
	// AgentAccount is the ServiceAccount of agents. Every other account of the namespace is a person's, who may do what roles
	// grant. Required.
	AgentAccount string
	// Issuers are accepted beside the one that the cluster publishes, for a cluster that is changing its own.
	Issuers []string
	// ReviewsPerSecond bounds the TokenReviews of agents' tokens (default 20).
	ReviewsPerSecond float64
	// ReviewEvery is how often the token of an agent that is connected is reviewed again (default 2 min), where the rate allows.
	ReviewEvery time.Duration
	// Log is required.
	Log *slog.Logger
	// Now is the clock that tokens expire by. Default time.Now.
	Now func() time.Time
}

// Tokens authenticates callers by their ServiceAccount tokens.
type Tokens struct {
	config  TokensConfig
	keys    *keys
	reviews *reviews
	nodes   *recent[string]
	people  *recent[Review]
	access  *recent[Decision]
}

// NewTokens makes an authenticator. Its Run must run.
func NewTokens(config TokensConfig) *Tokens {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.ReviewsPerSecond <= 0 {
		config.ReviewsPerSecond = 20
	}
	if config.ReviewEvery <= 0 {
		config.ReviewEvery = 2 * time.Minute
	}
	return &Tokens{
		config:  config,
		keys:    newKeys(config.API, config.Issuers, config.Log),
		reviews: newReviews(config),
		nodes:   newRecent[string](nodeKept, askLimit, config.Now),
		people:  newRecent[Review](accessKept, askLimit, config.Now),
		access:  newRecent[Decision](accessKept, askLimit, config.Now),
	}
}

// Prepare reads the cluster's keys for the first time. Before that every token is refused.
func (t *Tokens) Prepare(ctx context.Context) error {
	if err := t.keys.refresh(ctx); err != nil {
		return fmt.Errorf("read the cluster's token keys: %w", err)
	}
	return nil
}

// Run reviews tokens and renews keys until ctx ends.
func (t *Tokens) Run(ctx context.Context) {
	var group errgroup.Group
	group.Go(func() error { t.keys.run(ctx); return nil })
	group.Go(func() error { t.reviews.run(ctx); return nil })
	_ = group.Wait()
}

// Authenticate implements Authenticator.
func (t *Tokens) Authenticate(ctx context.Context) (Caller, error) {
	token, err := bearer(ctx)
	if err != nil {
		return Caller{}, err
	}
	if token == "" {
		return Caller{}, status.Error(codes.Unauthenticated, "no token came with the call")
	}
	told, err := t.verify(ctx, token)
	if err != nil {
		return Caller{}, status.Errorf(codes.Unauthenticated, "the token is not good here: %v", err)
	}
	caller := Caller{Name: told.name(), TokenID: told.ID, Until: told.Expiry.Time()}
	switch {
	case told.Kubernetes.Namespace != t.config.Namespace:
		return caller, status.Errorf(codes.PermissionDenied, "%s is of another namespace than %s", caller.Name, t.config.Namespace)
	case told.Kubernetes.ServiceAccount.Name == t.config.AgentAccount:
		return t.agent(ctx, caller, told, token)
	default:
		return t.person(ctx, caller, told, token)
	}
}

// verify checks a token on a goroutine of its own: it takes a deep stack, and the goroutine of an agent's stream would keep that
// for as long as the stream lives.
func (t *Tokens) verify(ctx context.Context, token string) (told *claims, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if fault := recover(); fault != nil {
				told, err = nil, fmt.Errorf("it could not be read: %v", fault)
			}
		}()
		told, err = t.keys.verify(ctx, token, t.config.Audience, t.config.Now())
	}()
	<-done
	return told, err
}

// agent takes the node from the claims. Nothing here waits for a TokenReview: that comes later and may end the stream.
func (t *Tokens) agent(ctx context.Context, caller Caller, told *claims, token string) (Caller, error) {
	pod, node := told.Kubernetes.Pod, told.Kubernetes.Node
	if pod == nil || pod.Name == "" {
		return caller, status.Error(codes.PermissionDenied, "the token is bound to no pod: which node's agent it is cannot be told")
	}
	key := sha256.Sum256([]byte(token))
	if err := t.reviews.refused(key); err != nil {
		return caller, err
	}
	caller.Kind = Agent
	caller.follow = func(end func(error)) func() { return t.reviews.follow(key, token, caller.Name, caller.Until, end) }
	if node != nil && node.Name != "" {
		caller.Node = node.Name
		return caller, nil
	}
	var err error
	caller.Node, err = t.nodes.get(ctx, pod.UID, func(ctx context.Context) (string, error) {
		return t.config.API.NodeOfPod(ctx, told.Kubernetes.Namespace, pod.Name, pod.UID)
	})
	if err != nil {
		return caller, unavailable("which node the pod "+pod.Name+" is on", err)
	}
	return caller, nil
}

// person confirms the token by a review before anything is done: people are few.
func (t *Tokens) person(ctx context.Context, caller Caller, told *claims, token string) (Caller, error) {
	key := sha256.Sum256([]byte(token))
	review, err := t.people.get(ctx, string(key[:]), func(ctx context.Context) (Review, error) {
		return t.config.API.ReviewToken(ctx, token, t.config.Audience)
	})
	if err != nil {
		return caller, unavailable("whether the token is good", err)
	}
	if !review.Authenticated || review.User.Name != told.name() {
		return caller, status.Errorf(codes.Unauthenticated, "the API server does not confirm the token: %s", review.Reason)
	}
	caller.Kind = Person
	caller.permit = func(ctx context.Context, what Action) error { return t.permit(ctx, review.User, what) }
	return caller, nil
}
