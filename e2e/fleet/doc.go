// Package fleet holds what is proven of a whole fleet of real programs on one host: parts that are killed, garbage on the
// port, clients that lie. The tests are all there is to it.
package fleet
