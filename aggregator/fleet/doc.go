// Package fleet holds what every node last said, in memory alone: agents resend on connect, so losing it loses nothing.
//
// Section bytes, assessments and profiles that are equal on many nodes are kept once. A node without news costs no
// decoding: assessments are made when something changed and kept per target.
package fleet
