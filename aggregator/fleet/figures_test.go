package fleet

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// synced is what a kube-proxy says that synced and was told of a change at these seconds.
func synced(last, queued int64) *v1.SectionVolatile {
	return &v1.SectionVolatile{Content: &v1.SectionVolatile_KubeProxy{KubeProxy: &v1.KubeProxyVolatile{
		HealthStatus: 200, Syncs: []*v1.FamilySync{{
			Family: v1.AddressFamily_ADDRESS_FAMILY_IPV4, LastSync: timestamppb.New(time.Unix(last, 0)), LastQueued: timestamppb.New(time.Unix(queued, 0)),
		}},
	}}}
}

func beat(t *testing.T, session *Session, volatile *v1.SectionVolatile) {
	t.Helper()
	heartbeat := &v1.Heartbeat{}
	if volatile != nil {
		heartbeat.Sections = []*v1.SectionHeartbeat{{Kind: v1.SectionKind_SECTION_KIND_KUBE_PROXY, Volatile: volatile}}
	}
	if err := session.Heartbeat(heartbeat); err != nil {
		t.Fatal(err)
	}
}

// Behind for ten minutes without a sync is stuck; a busy kube-proxy, and one that had nothing to do for a day, are not.
func TestStuck(t *testing.T) {
	const day = 86400
	for name, test := range map[string]struct {
		says func(minute int64) *v1.SectionVolatile
		want uint64
	}{
		"never came to its change": {func(int64) *v1.SectionVolatile { return synced(100, 200) }, 1},
		"is told more and more":    {func(minute int64) *v1.SectionVolatile { return synced(100, 200+60*minute) }, 1},
		"is busy":                  {func(minute int64) *v1.SectionVolatile { return synced(100+60*minute, 101+60*minute) }, 0},
		"has nothing to do":        {func(int64) *v1.SectionVolatile { return synced(-day, -day) }, 0},
		"came to it in the end": {func(minute int64) *v1.SectionVolatile {
			return map[bool]*v1.SectionVolatile{true: synced(100, 200), false: synced(201, 200)}[minute < 11]
		}, 0},
		"says nothing new": {func(minute int64) *v1.SectionVolatile {
			return map[bool]*v1.SectionVolatile{true: synced(100, 200), false: nil}[minute == 0]
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newStore(t)
			session, _, _ := join(s, "a")
			report(t, session, proxySection(t))
			for minute := range int64(12) {
				beat(t, session, test.says(minute))
				if minute < 10 && s.Figures().Stuck != 0 {
					t.Fatalf("stuck after %d minutes", minute)
				}
				c.advance(time.Minute)
			}
			if got := s.Figures().Stuck; got != test.want {
				t.Errorf("%d stuck, want %d", got, test.want)
			}
			c.advance(time.Hour)
			if got := s.Figures(); got.Stuck != 0 || len(got.Modes) != 0 || got.Connected != 1 {
				t.Errorf("of a silent node nothing is known: %+v", got)
			}
		})
	}
}

func TestFigures(t *testing.T) {
	s, c, _ := newCluster(t)
	got := s.Figures()
	if got.Connected != 2 || len(got.Modes) != 1 || got.Stuck != 0 {
		t.Errorf("got %+v", got)
	}
	for mode, nodes := range got.Modes {
		if nodes != 2 {
			t.Errorf("%d nodes in %s", nodes, mode)
		}
	}
	c.advance(time.Hour)
	session, _, _ := join(s, "a")
	report(t, session)
	session.Leave()
	if got := s.Figures(); got.Connected != 1 {
		t.Errorf("got %+v", got)
	}
}
