// Package fleetsim simulates a large fleet for one real aggregator: every simulated agent is the real client code of agent/stream
// with a TLS connection, a source address and a token of its own. What it reports was read on real node states by the real agent
// (see record), made different per node where nodes differ.
package fleetsim
