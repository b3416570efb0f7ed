package auth

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// permit asks whether a user may do something, and remembers the answer for a moment.
func (t *Tokens) permit(ctx context.Context, user User, what Action) error {
	key := fmt.Sprintf("%q %q %q %q %q", user.Name, user.UID, what.Verb, what.Resource, what.Node)
	decision, err := t.access.get(ctx, key, func(ctx context.Context) (Decision, error) {
		return t.config.API.ReviewAccess(ctx, user, what)
	})
	if err != nil {
		return unavailable("whether "+user.Name+" may "+what.String(), err)
	}
	if !decision.Allowed {
		return status.Errorf(codes.PermissionDenied, "%s may not %s%s", user.Name, what, because(decision.Reason))
	}
	return nil
}

// String names the action for people: "apply nodecleanups.offramp.dev worker-1".
func (a Action) String() string {
	text := a.Verb + " " + a.Resource + "." + Group
	if a.Node != "" {
		text += " " + a.Node
	}
	return text
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// unavailable refuses what could not be told: nothing is allowed because the API server does not answer.
func unavailable(what string, err error) error {
	if errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	return status.Errorf(codes.Unavailable, "it could not be told %s: %v", what, err)
}
