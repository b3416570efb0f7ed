// Package publish tells Kubernetes what the fleet is: Events about Nodes, the status of the object Fleet "cluster", and, where that is
// asked for, labels of Nodes. None of it is read back by Offramp: the nodes hold the truth.
//
// Every replica follows the fleet; the one that holds the Lease writes. A replica asks for the Lease once it has heard of every node,
// or has listened for long enough to say that it has not: what it does not know yet must not look like news, or like a smaller
// fleet. An Event is named after what it tells, so that the API server takes the same news once, whoever tells it and however often.
//
// One thing is told without the Lease: that an order was refused. Only the replica that passed the order on hears of it.
package publish
