// Package failover holds, with real processes, that losing replicas of the aggregator loses nothing: two of them are killed,
// stopped and cut off at random while agents report and clean-ups run. No answer is wrong in between, at most said to be incomplete;
// every order is done once; and in the end both replicas, the nodes' kernels, their journals and the audit logs agree.
package failover
