package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Whatever nodes become clean, dirty, or are forgotten in whatever order: who is the first of each pool is what looking at all of
// them says, and that is seldom done.
func TestTheFirstOfEachPoolIsFollowed(t *testing.T) {
	s, c, around := newCluster(t)
	for i := range 40 {
		around.facts.Nodes = append(around.facts.GetNodes(), &v1.ClusterNode{Name: fmt.Sprint("n", i), Pool: fmt.Sprint("pool-", i%4)})
	}
	sessions := make([]*Session, 40)
	for i := range sessions {
		sessions[i], _, _ = join(s, fmt.Sprint("n", i))
		report(t, sessions[i], kernelSection(t, 6, "6.1"), setsSection(t, 7))
	}
	random, looked := rand.New(rand.NewPCG(1, 1)), 0
	count := func(m *moment) map[string]first { looked++; return s.firstOfPools(m) }
	const steps = 4000
	for range steps {
		c.advance(time.Duration(random.IntN(3)) * time.Second)
		report(t, sessions[random.IntN(len(sessions))], setsSection(t, uint64(max(0, random.IntN(10)-7))))
		m := s.moment(nftables)
		if got, want := s.firsts.get(m, count), s.firstOfPools(m); !maps.Equal(got, want) {
			t.Fatalf("first of each pool %v, want %v", got, want)
		}
	}
	if looked > steps/4 {
		t.Errorf("all nodes were looked at %d times in %d steps", looked, steps)
	}
}

func TestAForgottenNodeIsNotTheFirst(t *testing.T) {
	s, c, _ := newCluster(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1"), setsSection(t, 7))
	report(t, session, setsSection(t, 0))
	if got := s.moment(nftables).first["blue"]; got.node != "a" {
		t.Fatalf("the first of its pool is %v", got)
	}
	session.Leave()
	c.advance(25 * time.Hour)
	s.Sweep()
	if got := s.moment(nftables).first["blue"]; got.node != "" {
		t.Errorf("the first of its pool is %v, which is forgotten", got)
	}
}

// Clean nodes of two pools exchange their Node objects' pools.
func TestTheFirstOfEachPoolGoesByTheNewestNodeObjects(t *testing.T) {
	s, _, around := newCluster(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1"), setsSection(t, 7))
	report(t, session, setsSection(t, 0))
	s.moment(nftables)
	around.facts = &v1.ClusterFacts{Nodes: []*v1.ClusterNode{{Name: "a", Pool: "green"}}}
	if got := s.moment(nftables).first; got["green"].node != "a" || got["blue"].node != "" {
		t.Errorf("the first of each pool: %v", got)
	}
}
