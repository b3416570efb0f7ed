package auth

import "context"

// API is what this package asks of a Kubernetes API server. Every method returns soon after ctx ends.
type API interface {
	// Published returns who issues the cluster's ServiceAccount tokens and the keys that they are signed with.
	Published(ctx context.Context) (Published, error)
	// ReviewToken asks whether a token is good for the audience now (TokenReview).
	ReviewToken(ctx context.Context, token, audience string) (Review, error)
	// NodeOfPod returns the node that a pod with this UID was bound to. An error says that it could not be told.
	NodeOfPod(ctx context.Context, namespace, name, uid string) (string, error)
	// ReviewAccess asks whether a user may do something (SubjectAccessReview).
	ReviewAccess(ctx context.Context, user User, what Action) (Decision, error)
}

// Published is what a cluster publishes of its tokens.
type Published struct {
	// Issuer is the "iss" claim of new tokens.
	Issuer string
	// Keys are a JSON Web Key Set.
	Keys []byte
}

// Review is what the API server says of a token.
type Review struct {
	// Authenticated is true for a token that is good now.
	Authenticated bool
	// User is whose it is.
	User User
	// Reason says why a token is not good, for people.
	Reason string
}

// User is a user as the API server knows it.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Decision is what the API server says of an action.
type Decision struct {
	Allowed bool
	// Reason is for people; it may be empty.
	Reason string
}
