package serve

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// crew does what needs a deep stack, for goroutines that live long and mostly wait. A goroutine's stack grows to what it ever
// needed and shrinks again only to four times of what it needs while it waits: with a stream per node, decoding and judging a
// report on the stream's own goroutine costs each node 8 KiB for ever. The few workers of a crew pay for it once; they
// also bound how much of a storm is worked on at a time, to what there are processors for.
type crew struct {
	jobs  chan *job
	ended chan struct{}
	group sync.WaitGroup
}

type job struct {
	do    func()
	done  chan struct{}
	fault any
}

func newCrew() *crew { return &crew{jobs: make(chan *job), ended: make(chan struct{})} }

// start makes the crew work until stop is called, once; stop waits for what is being done. Before and after that, whoever
// wants something done does it himself.
func (c *crew) start() (stop func()) {
	for range runtime.GOMAXPROCS(0) {
		c.group.Go(c.work)
	}
	return func() { close(c.ended); c.group.Wait() }
}

func (c *crew) work() {
	for {
		select {
		case j := <-c.jobs:
			j.run()
		case <-c.ended:
			return
		}
	}
}

// run hands a fault on to whoever waits: it is one call's, and not the crew's.
func (j *job) run() {
	defer close(j.done)
	defer func() {
		if fault := recover(); fault != nil {
			j.fault = fmt.Sprintf("%v\n%s", fault, debug.Stack())
		}
	}()
	j.do()
}

// do has something done and waits for it. It panics where that does. Without a crew the caller does it himself.
func (c *crew) do(what func()) {
	if c == nil {
		what()
		return
	}
	j := &job{do: what, done: make(chan struct{})}
	select {
	case c.jobs <- j:
	case <-c.ended:
		what()
		return
	}
	<-j.done
	if j.fault != nil {
		panic(j.fault)
	}
}
