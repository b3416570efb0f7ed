package failover

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// howLong is half a minute, and five for who wants to be sure.
func howLong() time.Duration {
	if os.Getenv("OFFRAMP_E2E_LIVE") == "1" {
		return 5 * time.Minute
	}
	return 35 * time.Second
}

// Each replica is killed, stopped and cut off at random, sometimes both at once, while nodes change and are cleaned up, and both are
// asked all the time.
func TestFailoverUnderLoad(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), howLong())
	defer cancel()
	s.ctx = ctx
	var all sync.WaitGroup
	harmed, asked, ordered := make([]map[string]int, len(s.replicas)), make([]counts, len(s.replicas)), make([]done, len(s.cleaned))
	for i, r := range s.replicas {
		all.Go(func() { harmed[i] = r.suffer() })
		all.Go(func() { asked[i] = s.watch(r) })
	}
	for _, n := range s.reporting {
		all.Go(func() { s.churn(n) })
	}
	for i, n := range s.cleaned {
		all.Go(func() { ordered[i] = s.cleanUp(n) })
	}
	all.Wait()
	s.endsWell()
	for i, r := range s.replicas {
		t.Logf("replica %s %v; %d answers, %d of them said to be incomplete, %d with silent nodes; %d questions had no answer",
			r.name, harmed[i], asked[i].answers, asked[i].incomplete, asked[i].silent, asked[i].failed)
		if asked[i].answers == 0 || len(harmed[i]) == 0 {
			t.Errorf("nothing was tried on replica %s", r.name)
		}
	}
	for i, n := range s.cleaned {
		t.Logf("%s: %d orders done and given again, %d refused, %d calls of kubectl-offramp, the longest order took %s",
			n.name, len(ordered[i].ids), ordered[i].refused, ordered[i].tries, ordered[i].longest.Round(100*time.Millisecond))
		if len(ordered[i].ids) == 0 {
			t.Errorf("no order for %s was done", n.name)
		}
		s.agrees(n, ordered[i])
	}
}

// endsWell holds that both replicas have everything right soon after the last harm.
func (s *stage) endsWell() {
	s.Helper()
	began := time.Now()
	wrong := s.differs()
	for ; wrong != "" && time.Since(began) < 45*time.Second; wrong = s.differs() {
		time.Sleep(100 * time.Millisecond)
	}
	if wrong != "" {
		s.Errorf("45 s after the last harm: %s", wrong)
		return
	}
	s.Logf("both replicas had everything right %s after the last harm", time.Since(began).Round(100*time.Millisecond))
}

// suffer harms a replica again and again until nothing more is to happen, and counts the harms.
func (r *replica) suffer() map[string]int {
	count := map[string]int{}
	harms := r.harms()
	for r.pause(time.Duration(1000+rand.IntN(5000)) * time.Millisecond); r.ctx.Err() == nil; r.pause(time.Duration(1000+rand.IntN(14000)) * time.Millisecond) {
		names := slices.Sorted(maps.Keys(harms))
		name := names[rand.IntN(len(names))]
		count[name]++
		harms[name](time.Duration(1000+rand.IntN(6000)) * time.Millisecond)
	}
	return count
}

// churn changes the number of sets of a node, so that what is out of date shows.
func (s *stage) churn(n *node) {
	has := 0
	for s.ctx.Err() == nil {
		next := (has + 1 + rand.IntN(6)) % 7
		n.resize(has, next)
		has = next
		s.pause(time.Duration(4+rand.IntN(12)) * time.Second)
	}
}
