// Package orders takes orders from aggregators, decides whether this node obeys, has them done, and answers each one once,
// however often it is sent and whatever dies in between.
//
// An order goes this way: its form is checked, its id is looked up, the agent's own policy decides, it is written to the disk,
// it is done (by agent/cleanup, behind the node's own guards), its result is written to the disk, and the result is sent on
// every stream until an aggregator has acknowledged it. An order found on the disk without a result was interrupted: it is
// answered so at the next start, with what the clean-up's journal tells, and is not done again.
package orders
