package kubeproxy

import offrampv1 "offramp.dev/offramp/proto/offramp/v1"

// Answer is yes, no, or it cannot be told.
type Answer uint8

// Answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// Leftover tells whether something of this owner is a leftover under the running mode: an artefact that kube-proxy made
// and the running mode does not use. Unknown when the running mode is unknown and the owner is kube-proxy, or the owner
// is unknown. What is not kube-proxy's is never a leftover.
func Leftover(Owner, offrampv1.ProxyMode) Answer { return Unknown }
