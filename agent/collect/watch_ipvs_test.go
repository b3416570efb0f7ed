package collect

import (
	"testing"
	"time"
)

// The whole table is looked at at first, then every two minutes, and at once where the clock was set back.
func TestWholeIPVSTableIsDue(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	host := DefaultHost()
	host.Now = func() time.Time { return now }
	w := New(Config{Host: host}).Watch(WatchConfig{})
	for _, step := range []struct {
		later time.Duration
		want  bool
	}{
		{0, true}, {0, false}, {119 * time.Second, false}, {time.Second, true}, {time.Minute, false}, {-2 * time.Minute, true}, {time.Second, false},
	} {
		now = now.Add(step.later)
		if got := w.wholeIsDue(); got != step.want {
			t.Errorf("%v later: %v, want %v", step.later, got, step.want)
		}
	}
}
