// Package serve answers agents and people over gRPC. What one stream does wrong ends that stream with a status that says
// why, and touches no other.
package serve
