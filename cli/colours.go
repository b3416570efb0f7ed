package main

import (
	"io"

	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
)

// screen is stdout with colours where a person reads it: on a terminal that knows them, unless NO_COLOR (no-color.org) is set.
func screen(stdout io.Writer, lookup settings.Lookup) io.Writer {
	if isTerminal(stdout) && wantsColours(lookup) {
		return render.Screen{Writer: stdout}
	}
	return stdout
}

func wantsColours(lookup settings.Lookup) bool {
	no, _ := lookup("NO_COLOR")
	terminal, _ := lookup("TERM")
	return no == "" && terminal != "dumb"
}
