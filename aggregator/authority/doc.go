// Package authority makes the certificate authority that the aggregator's own certificate is signed by, where nobody brings
// one: it makes it, shares it between replicas, publishes it, and replaces it before it expires. A new authority is
// published for a while before it signs anything, and an old one stays published until it expires, so that nobody who
// checks certificates ever has to hurry.
package authority
