// Package discover finds the replicas behind the names of aggregators: a name is looked up again and again, each address is a
// replica, and the last addresses are remembered for when DNS does not answer, for a clean-up changes the path that DNS takes.
package discover
