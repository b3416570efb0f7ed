// Package version tells which build of Offramp a program is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Stamped by the Makefile: -ldflags "-X offramp.dev/offramp/internal/version.version=v1.2.3 ...". The linker can set nothing
// but package variables; no code writes them.
var (
	version string
	commit  string
	date    string
)

// Info says what was built, and when.
type Info struct {
	// Version is the tag, such as "v0.1.0"; "dev" for a build without a stamp.
	Version string `json:"version"`
	// Commit is the full Git revision; empty when it is not known.
	Commit string `json:"commit,omitempty"`
	// Date is when the commit was made or the program was built, in RFC 3339; empty when it is not known.
	Date string `json:"date,omitempty"`
	// Go is the version of the compiler, and Platform what was compiled for, such as "linux/amd64".
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get returns the stamps of this build; what was not stamped comes from the build information that Go itself records.
func Get() Info {
	recorded, _ := debug.ReadBuildInfo()
	return fill(Info{Version: version, Commit: commit, Date: date}, recorded)
}

func fill(info Info, recorded *debug.BuildInfo) Info {
	info.Go, info.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	if info.Version == "" {
		info.Version = "dev"
	}
	if recorded == nil {
		return info
	}
	for _, setting := range recorded.Settings {
		switch {
		case setting.Key == "vcs.revision" && info.Commit == "":
			info.Commit = setting.Value
		case setting.Key == "vcs.time" && info.Date == "":
			info.Date = setting.Value
		}
	}
	return info
}

// String is one line for people: "v0.1.0 (commit 1234abcd, 2026-11-30T12:00:00Z, go1.26.0 linux/amd64)".
func (i Info) String() string {
	short, built := i.Commit, i.Date
	if len(short) > 12 {
		short = short[:12]
	}
	if short == "" {
		short = "unknown"
	}
	if built == "" {
		built = "no date"
	}
	return fmt.Sprintf("%s (commit %s, %s, %s %s)", i.Version, short, built, i.Go, i.Platform)
}
