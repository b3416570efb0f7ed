// Package stream talks to aggregators: it says who this node is, sends the sections that changed, gives signs of life, and
// answers what it is asked. The node loses nothing when an aggregator goes away: it goes on reading, and comes back.
package stream
