// Package trace holds what is proven of looking at a node with the real agent, on this host and in virtual machines:
// that it changes nothing, that what it says is what the native tools say, and that it takes nothing of other people's
// for kube-proxy's. The tests are all there is to it.
package trace
