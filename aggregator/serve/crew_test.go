package serve

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestACrewDoesEverythingFewAtATime(t *testing.T) {
	c := newCrew()
	stop := c.start()
	var done, now, most atomic.Int64
	var waiting sync.WaitGroup
	for range 200 {
		waiting.Go(func() {
			c.do(func() {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(100 * time.Microsecond)
				now.Add(-1)
				done.Add(1)
			})
		})
	}
	waiting.Wait()
	stop()
	if done.Load() != 200 || most.Load() > int64(runtime.GOMAXPROCS(0)) {
		t.Errorf("%d of 200 done, %d at a time with %d processors", done.Load(), most.Load(), runtime.GOMAXPROCS(0))
	}
	c.do(func() { done.Add(1) })
	if done.Load() != 201 {
		t.Error("nothing is done any more once the crew has gone")
	}
}

func TestAFaultIsThatOfWhoeverWaits(t *testing.T) {
	c := newCrew()
	defer c.start()()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the fault was lost")
			}
		}()
		c.do(func() { panic("a fault") })
	}()
	well := false
	if c.do(func() { well = true }); !well {
		t.Error("the crew did not survive a fault")
	}
}
