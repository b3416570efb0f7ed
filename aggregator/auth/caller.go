package auth

import (
	"context"
	"time"
)

// Kind is what a caller is.
type Kind int

const (
	// Unchecked is a caller whom nobody asked who it is: --auth none, or a method that is open to everybody.
	Unchecked Kind = iota
	// Agent is the agent of the node Caller.Node.
	Agent
	// Person is a person, or a program that acts for one.
	Person
)

// String is the kind as it is logged.
func (k Kind) String() string {
	switch k {
	case Agent:
		return "agent"
	case Person:
		return "person"
	default:
		return "unchecked"
	}
}

// Caller is who makes a call, as far as it was proven.
type Caller struct {
	Kind Kind
	// Name is the proven name: a ServiceAccount's user name ("system:serviceaccount:NAMESPACE:NAME"), or the common name of
	// a client certificate. Empty for Unchecked.
	Name string
	// Claimed is the name that the caller gives itself, at most 253 bytes of printable text. Nothing proves it.
	Claimed string
	// TokenID is the token's "jti" claim, by which the API server's audit names the person who asked for it. Empty for
	// certificates and for tokens of Kubernetes before 1.30.
	TokenID string
	// Node is the node that the caller is the agent of.
	Node string
	// Until is when the proof ends, and with it every call that rests on it. Zero for Unchecked.
	Until time.Time

	grounds
}

// grounds are what an authenticator leaves with a caller for the rest of the call. Both may be nil.
type grounds struct {
	// permit decides whether the caller may do something. Its errors are gRPC statuses.
	permit func(ctx context.Context, what Action) error
	// follow tells end when the caller's proof is withdrawn before Until, until stop is called.
	follow func(end func(error)) (stop func())
}

// Action is what a person wants to do, in the words of a Kubernetes role: group offramp.dev, cluster-wide resources.
type Action struct {
	// Verb is what to do with the resource: get, list, watch nodes; plan, apply, restore nodecleanups; accept, withdraw
	// findings.
	Verb string
	// Resource is nodes, nodecleanups or findings.
	Resource string
	// Node is the node's name, empty where it is about all nodes.
	Node string
}

// Group is the API group of the resources that roles name. Nothing is stored under it.
const Group = "offramp.dev"

type callerKey struct{}

// FromContext returns who makes the call that ctx belongs to. Under this package's interceptors it is always there.
func FromContext(ctx context.Context) (Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	return caller, ok
}

// NewContext returns ctx with a caller. Tests of what reads the caller need it; otherwise the interceptors do it.
func NewContext(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}
