// Package orders is the desk between people and nodes: it holds the orders that are under way, sends them to their nodes,
// collects what the nodes answer, and lets whoever asks follow along.
//
// It keeps nothing beyond the life of the process and need not: a node does an order once and keeps the result, and the
// person's program asks again with the same id.
package orders
