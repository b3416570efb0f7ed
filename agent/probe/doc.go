// Package probe tries: it makes real connections from the node to Services through their addresses, and asks the endpoints
// behind them directly, so that a path that broke is told from an endpoint that is down.
//
// It makes connections and nothing else. What a Service's address leads to is handed to it, as the kernel has it.
package probe
