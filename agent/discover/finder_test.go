package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const name = "replicas:8443"

// dns is a resolver whose answers are the test's: addresses, or an error.
type dns struct {
	mu     sync.Mutex
	answer []string
	err    error
	hangs  bool
	asked  []time.Time
}

func (d *dns) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked = append(d.asked, time.Now()); network != "ip" || host != "replicas" {
		return nil, fmt.Errorf("asked for %s %s", network, host)
	}
	if d.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var all []netip.Addr
	for _, text := range d.answer {
		all = append(all, netip.MustParseAddr(text))
	}
	return all, d.err
}

func (d *dns) set(err error, answer ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.answer = err, answer
}

func (d *dns) times() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// following is a Follow that runs.
type following struct {
	t     *testing.T
	dns   *dns
	hints chan struct{}
	log   *strings.Builder

	mu    sync.Mutex
	found []string
}

// follow starts one. Without randomness look-ups are 27 s apart in the long run, and pauses after failures as long as they can be.
func follow(t *testing.T, target string, d *dns, memory *File) *following {
	t.Helper()
	parsed, err := Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	f := &following{t: t, dns: d, hints: make(chan struct{}, 1), log: &strings.Builder{}}
	finder := Finder{Resolver: d, Memory: memory, Rand: func() float64 { return 0 }, Log: slog.New(slog.NewTextHandler(f.log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		finder.Follow(ctx, parsed, f.hints, func(addresses []string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.found = append(f.found, strings.Join(addresses, " "))
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

// is waits for a time and compares all that was found since the start.
func (f *following) is(after time.Duration, want ...string) {
	f.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.found, want) {
		f.t.Errorf("found %q, want %q", f.found, want)
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dns{answer: []string{"10.0.0.6", "10.0.0.5"}}
		f := follow(t, name, d, nil)
		both := "10.0.0.5:8443 10.0.0.6:8443"
		f.is(0, both)
		// Another order, twice the same, the same as IPv6: nothing new.
		d.set(nil, "10.0.0.5", "10.0.0.6", "::ffff:10.0.0.5", "10.0.0.5")
		f.is(time.Minute, both)
		// A failure, and an answer without an address: what is known stays.
		d.set(errors.New("no such host"))
		f.is(time.Minute, both)
		d.set(nil)
		f.is(time.Minute, both)
		d.set(nil, "0.0.0.0")
		f.is(time.Minute, both)
		d.set(nil, "fd00::7", "10.0.0.5")
		f.is(31*time.Second, both, "10.0.0.5:8443 [fd00::7]:8443")
		if got := strings.Count(f.log.String(), "cannot be looked up"); got != 1 {
			t.Errorf("three minutes of failures were told %d times:\n%s", got, f.log)
		}
	})
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dns{answer: []string{"10.0.0.5"}}
		began := time.Now()
		f := follow(t, name, d, nil)
		f.is(30*time.Second, "10.0.0.5:8443")
		d.set(errors.New("refused"))
		time.Sleep(200 * time.Second)
		d.set(nil, "10.0.0.5")
		time.Sleep(90 * time.Second)
		synctest.Wait()
		var seconds []string
		for _, at := range d.times() {
			seconds = append(seconds, fmt.Sprint(at.Sub(began).Seconds()))
		}
		// After a change 3.6, 7.2, 14.4 s and then 27 s apart; after a failure 2, 4, 8, 16 and then 30 s; after it is over 27 s again.
		want := "0 3.6 10.8 25.2 52.2 54.2 58.2 66.2 82.2 112.2 142.2 172.2 202.2 232.2 259.2 286.2 313.2"
		if strings.Join(seconds, " ") != want {
			t.Errorf("asked at %v, want %s", seconds, want)
		}
	})
}

func TestAHintAsksSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dns{answer: []string{"10.0.0.5"}}
		f := follow(t, name, d, nil)
		f.is(time.Second, "10.0.0.5:8443")
		d.set(nil, "10.0.0.6")
		f.hints <- struct{}{}
		f.is(time.Second, "10.0.0.5:8443")
		f.is(1100*time.Millisecond, "10.0.0.5:8443", "10.0.0.6:8443")
	})
}

// A resolver that says nothing is not waited for.
func TestResolverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dns{hangs: true}
		follow(t, name, d, remembering(t, "10.0.0.9:8443")).is(5*time.Second, "10.0.0.9:8443")
	})
}

func TestLiteralIsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dns{err: errors.New("nobody is to ask")}
		follow(t, "[fd00::5]:8443", d, nil).is(time.Hour, "[fd00::5]:8443")
		if len(d.times()) != 0 {
			t.Error("it was looked up")
		}
	})
}

func TestTooManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dns{}
		var many []string
		for i := range 20 {
			many = append(many, fmt.Sprintf("10.0.0.%d", 10+i))
		}
		d.set(nil, many...)
		f := follow(t, name, d, nil)
		var first []string
		for i := range 16 {
			first = append(first, fmt.Sprintf("10.0.0.%d:8443", 10+i))
		}
		f.is(0, strings.Join(first, " "))
		// Those that were left out come first now: those in use stay.
		slices.Reverse(many)
		d.set(nil, many...)
		f.is(time.Minute, strings.Join(first, " "))
		// One goes: one that was left out takes its place.
		d.set(nil, many[:19]...)
		f.is(time.Minute, strings.Join(first, " "), strings.Join(append(first[1:], "10.0.0.26:8443"), " "))
		if got := strings.Count(f.log.String(), "more addresses than are used"); got != 2 {
			t.Errorf("told %d times:\n%s", got, f.log)
		}
	})
}
