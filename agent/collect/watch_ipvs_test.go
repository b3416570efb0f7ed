package collect

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
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

// A kube-proxy that says that nothing was queued since puts it off to ten minutes; one that does not say, or is behind, changes
// nothing.
func TestWholeIPVSTableIsDueAfterAChange(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	host := DefaultHost()
	host.Now = func() time.Time { return now }
	w := New(Config{Host: host}).Watch(WatchConfig{})
	for i, step := range []struct {
		kubeProxy *offrampv1.Section
		later     time.Duration
		want      bool
	}{
		{queuedAndSynced(90, 100, 91, 101), 0, true},
		{queuedAndSynced(90, 130, 91, 131), 3 * time.Minute, false}, // a sync of nothing new
		{queuedAndSynced(90, 130, 91, 131), 7 * time.Minute, true},  // ten minutes in all
		{queuedAndSynced(90, 130, 91, 131), 3 * time.Minute, false},
		{queuedAndSynced(90, 140, 92, 141), 0, true}, // one family had something new
		{queuedAndSynced(90, 150, 93, 151), time.Minute, false},
		{queuedAndSynced(90, 150, 93, 151), time.Minute, true},
		{queuedAndSynced(90, 80), 2 * time.Minute, true},
		{queuedAndSynced(90, 80), 2 * time.Minute, true}, // what is queued is not synced
		{queuedAndSynced(0, 100), 2 * time.Minute, true},
		{queuedAndSynced(0, 100), 2 * time.Minute, true}, // it does not say
		{nil, 2 * time.Minute, true},
		{nil, 2 * time.Minute, true},
	} {
		now = now.Add(step.later)
		w.last[kindKubeProxy] = step.kubeProxy
		if got := w.wholeIsDue(); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

// queuedAndSynced is a kube-proxy with a proxier for each pair of seconds; 0 is never.
func queuedAndSynced(seconds ...int64) *offrampv1.Section {
	at := func(second int64) *timestamppb.Timestamp {
		if second == 0 {
			return nil
		}
		return timestamppb.New(time.Unix(second, 0))
	}
	volatile := &offrampv1.KubeProxyVolatile{}
	for i := 0; i < len(seconds); i += 2 {
		volatile.Syncs = append(volatile.Syncs, &offrampv1.FamilySync{LastQueued: at(seconds[i]), LastSync: at(seconds[i+1])})
	}
	return &offrampv1.Section{Volatile: &offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: volatile}}}
}
