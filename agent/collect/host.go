// Package collect reads what the kernel of a node really holds and what kube-proxy says of itself, section by section.
//
// It never writes: it loads no module, creates no table, runs no program. One file per kind of state; each reads one or a
// few sections and reports each as one of five states (absent, empty, present, unreadable, inconsistent).
package collect

import "time"

// Host is where a node's state is found. The zero value is not usable; see DefaultHost.
type Host struct {
	// Proc is where the proc file system of the host's PID namespace is mounted.
	Proc string
	// Sys is where sysfs is mounted.
	Sys string
	// Root is where the host's root file system (os-release and the like) is found.
	Root string
	// Now is the node's clock.
	Now func() time.Time
}

// DefaultHost is the host a program runs on directly.
func DefaultHost() Host {
	return Host{Proc: "/proc", Sys: "/sys", Root: "/", Now: time.Now}
}
