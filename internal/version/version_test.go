package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestFill(t *testing.T) {
	recorded := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-11-30T12:00:00Z"},
	}}
	tests := map[string]struct {
		stamped  Info
		recorded *debug.BuildInfo
		want     string
	}{
		"stamped wins":   {Info{Version: "v0.1.0", Commit: "feed", Date: "today"}, recorded, "v0.1.0 (commit feed, today, go"},
		"go's own":       {Info{}, recorded, "dev (commit 0123456789ab, 2026-11-30T12:00:00Z, go"},
		"nothing known":  {Info{}, nil, "dev (commit unknown, no date, go"},
		"part of stamps": {Info{Version: "v1.0.0"}, &debug.BuildInfo{}, "v1.0.0 (commit unknown, no date, go"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fill(tt.stamped, tt.recorded).String(); !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want it to begin with %q", got, tt.want)
			}
		})
	}
}

func TestGet(t *testing.T) {
	if got := Get(); got.Version == "" || got.Go == "" || !strings.Contains(got.Platform, "/") {
		t.Errorf("got %+v", got)
	}
}
