// Package images builds the images of agent and aggregator on a host where no base image can be pulled, and runs the agent's
// on real node state.
//
// A docker daemon of its own builds them: with folders, a socket and process and mount namespaces of its own it meets no other,
// and nothing of it is left when it ends, however it ends. The base image that the Dockerfiles name is stood in for by a Debian of
// the same suite with the host's Go.
package images

// BaseImage is the base image that the Dockerfiles name, and suite the Debian in it.
const (
	BaseImage = "golang:1.26-trixie"
	suite     = "trixie"
)

// Agent and Aggregator are the names of the images, and of the programs in them.
const (
	Agent      = "offramp-agent"
	Aggregator = "offramp-aggregator"
)
