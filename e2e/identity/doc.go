// Package identity holds tests of who may say and order what, with the real programs and a real API server.
package identity
