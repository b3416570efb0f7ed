// Package orders holds, with real processes and a real kernel, that an order is done once or not at all, and that what people
// are told of it is true, whatever is killed or cut in between.
package orders
