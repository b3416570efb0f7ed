package orders

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/orderform"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// What each policy lets through.
func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		policy Policy
		order  *v1.Order
		want   v1.OrderOutcome
		why    string
	}{
		{Never, plan(idA), refused, "--cleanup=never"},
		{Never, apply(idA), refused, "--cleanup=never"},
		{"nonsense", apply(idA), refused, "--cleanup=never"},
		{Plan, plan(idA), done, "did it"},
		{Plan, apply(idA), refused, "--cleanup=plan"},
		{Plan, restore(idA), refused, "--cleanup=plan"},
		{Apply, plan(idA), done, "did it"},
		{Apply, apply(idA), done, "did it"},
		{Apply, restore(idA), done, "did it"},
	} {
		w := newWorker()
		a := start(t, config(w, tt.policy, t.TempDir()))
		a.feed.Order(tt.order)
		got := a.result(a.feed)
		if got.GetOutcome() != tt.want || !strings.Contains(got.GetMessage(), tt.why) || got.GetId() != idA ||
			got.GetNode() != "worker-1" || got.GetKind() != tt.order.GetKind() {
			t.Errorf("%s, %s: got %v", tt.policy, word(tt.order), got)
		}
		if tt.want == refused && (w.did() != 0 || got.GetExitCode() != 2) {
			t.Errorf("%s, %s: refused, and done %d times; %v", tt.policy, word(tt.order), w.did(), got)
		}
		a.stop()
		if last := a.audit[len(a.audit)-1]; last.Outcome != tt.want || last.Order.GetCaller() != "jane" {
			t.Errorf("%s, %s: the audit says %+v", tt.policy, word(tt.order), last)
		}
	}
}

// An agent that may not be told anything leaves nothing on the disk.
func TestNeverWritesNothing(t *testing.T) {
	dir := t.TempDir()
	a := start(t, config(newWorker(), Never, dir))
	a.feed.Order(apply(idA))
	a.result(a.feed)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestMalformedOrders(t *testing.T) {
	for want, spoil := range map[string]func(*v1.Order){
		"16 to 64 bytes":          func(o *v1.Order) { o.Id = "short" },
		"lower-case letters":      func(o *v1.Order) { o.Id = "../../../../etc/passwd" },
		"16 to 64":                func(o *v1.Order) { o.Id = strings.Repeat("x", 65) },
		"no order of kind":        func(o *v1.Order) { o.Kind = 99 },
		"target 99 is not know":   func(o *v1.Order) { o.Target = 99 },
		"32 bytes":                func(o *v1.Order) { o.PlanDigest = []byte("abc") },
		"wants a target":          func(o *v1.Order) { o.Target = v1.Target_TARGET_UNSPECIFIED },
		"when it was sent":        func(o *v1.Order) { o.SentAt = nil },
		"until when":              func(o *v1.Order) { o.Deadline = nil },
		"longer than 1h":          func(o *v1.Order) { o.Deadline = timestamppb.New(time.Unix(1000+3601, 0)) },
		"its deadline is over":    func(o *v1.Order) { o.Deadline = o.GetSentAt() },
		"longer than may be":      func(o *v1.Order) { o.Caller = strings.Repeat("x", 1025) },
		"id of a backup":          func(o *v1.Order) { o.Kind = v1.OrderKind_ORDER_KIND_RESTORE },
		"a target and nothing el": func(o *v1.Order) { o.Kind = v1.OrderKind_ORDER_KIND_PLAN },
	} {
		w := newWorker()
		a := start(t, config(w, Apply, t.TempDir()))
		order := apply(idA)
		spoil(order)
		a.feed.Order(order)
		got := a.result(a.feed)
		if got.GetOutcome() != refused || !strings.Contains(got.GetMessage(), want) || w.did() != 0 || got.GetId() != order.GetId() {
			t.Errorf("%s: got %v, done %d times", want, got, w.did())
		}
	}
}

// The node's clock does not matter to a deadline: here it is years off.
func TestDeadlineIsTheAggregators(t *testing.T) {
	for _, year := range []int{1990, 2090} {
		w := newWorker()
		c := config(w, Apply, t.TempDir())
		c.Now = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		a := start(t, c)
		a.feed.Order(apply(idA))
		if got := a.result(a.feed); got.GetOutcome() != done {
			t.Errorf("%d: %v", year, got)
		}
	}
}

// What is at work when its deadline comes is told to stop.
func TestDeadlineStopsTheWork(t *testing.T) {
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, t.TempDir()))
	order := apply(idA)
	order.Deadline = timestamppb.New(order.GetSentAt().AsTime().Add(30 * time.Millisecond))
	a.feed.Order(order)
	if got := a.result(a.feed); got.GetOutcome() != fail || !strings.Contains(got.GetMessage(), "deadline") {
		t.Errorf("got %v", got)
	}
}

// However often an order comes, on whatever stream, before and after a restart: it is done once, and every stream that asks
// gets the one result.
func TestDoneOnce(t *testing.T) {
	dir := t.TempDir()
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, dir))
	other := a.open()
	a.feed.Order(apply(idA))
	<-w.begun
	a.feed.Order(apply(idA))
	other.Order(apply(idA))
	a.settled()
	close(w.hold)
	first := a.result(a.feed)
	if first.GetOutcome() != done || !proto.Equal(first, a.result(other)) {
		t.Errorf("got %v", first)
	}
	a.feed.Order(apply(idA))
	if again := a.result(a.feed); !proto.Equal(first, again) {
		t.Errorf("the second time %v", again)
	}
	a.stop()
	a = start(t, config(w, Apply, dir))
	if again := a.result(a.feed); !proto.Equal(first, again) {
		t.Errorf("not acknowledged, after a restart: %v", again)
	}
	a.feed.Order(apply(idA))
	if again := a.result(a.feed); !proto.Equal(first, again) {
		t.Errorf("asked again after a restart: %v", again)
	}
	if w.did() != 1 {
		t.Errorf("done %d times", w.did())
	}
}

// A refusal is an answer too: it stays one when the policy has changed since.
func TestRefusedOnce(t *testing.T) {
	dir := t.TempDir()
	w := newWorker()
	a := start(t, config(w, Plan, dir))
	a.feed.Order(apply(idA))
	a.result(a.feed)
	a.stop()
	a = start(t, config(w, Apply, dir))
	a.result(a.feed)
	a.feed.Order(apply(idA))
	if got := a.result(a.feed); got.GetOutcome() != refused || w.did() != 0 {
		t.Errorf("got %v, done %d times", got, w.did())
	}
}

// Another order under an id that is known is refused on the stream that it came on, and changes nothing about the first.
func TestSameIDOtherContent(t *testing.T) {
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, t.TempDir()))
	a.feed.Order(apply(idA))
	<-w.begun
	hostile := a.open()
	other := apply(idA)
	other.PlanDigest[0] = 1
	hostile.Order(other)
	if got := a.result(hostile); got.GetOutcome() != refused || !strings.Contains(got.GetMessage(), "another order of this id") {
		t.Errorf("got %v", got)
	}
	close(w.hold)
	if got := a.result(a.feed); got.GetOutcome() != done || w.did() != 1 {
		t.Errorf("got %v", got)
	}
}

func TestOneAtATime(t *testing.T) {
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, t.TempDir()))
	a.feed.Order(apply(idA))
	<-w.begun
	a.feed.Order(apply(idB))
	if got := a.result(a.feed); got.GetId() != idB || got.GetOutcome() != refused || !strings.Contains(got.GetMessage(), idA) {
		t.Errorf("got %v", got)
	}
	close(w.hold)
	if got := a.result(a.feed); got.GetId() != idA || got.GetOutcome() != done {
		t.Errorf("got %v", got)
	}
}

// Killed in the middle: the next start says so, and does it never again.
func TestKilledInTheMiddle(t *testing.T) {
	for name, interrupted := range map[string]func(string) (string, *v1.CleanupResult){
		"the journal knows": func(string) (string, *v1.CleanupResult) { return "3 of 4 operations", &v1.CleanupResult{Remaining: 1} },
		"no journal":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			killed(t, dir, apply(idA))
			w := newWorker()
			c := config(w, Apply, dir)
			c.Interrupted = interrupted
			a := start(t, c)
			got := a.result(a.feed)
			if got.GetOutcome() != stopped || got.GetExitCode() != 4 || got.GetMessage() == "" || (interrupted != nil) != (got.GetCleanup().GetRemaining() == 1) {
				t.Errorf("got %v", got)
			}
			a.feed.Order(apply(idA))
			if again := a.result(a.feed); !proto.Equal(got, again) || w.did() != 0 {
				t.Errorf("again %v, done %d times", again, w.did())
			}
			a.stop()
			if len(a.audit) != 1 || a.audit[0].Outcome != stopped {
				t.Errorf("the audit says %+v", a.audit)
			}
		})
	}
}

// A stop in good order is recorded before the agent ends.
func TestStoppedInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, dir))
	a.feed.Order(apply(idA))
	<-w.begun
	a.stop()
	a = start(t, config(w, Apply, dir))
	if got := a.result(a.feed); got.GetOutcome() != stopped || !strings.Contains(got.GetMessage(), "canceled") || w.did() != 1 {
		t.Errorf("got %v", got)
	}
}

// A record that cannot be read is that of an order that was taken.
func TestDamagedRecord(t *testing.T) {
	for _, text := range []string{"", "{", "null", `{"order":{"id":"another-one-0000000"}}`} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, folder, idA+takenSuffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWorker()
		a := start(t, config(w, Apply, dir))
		got := a.result(a.feed)
		a.feed.Order(apply(idA))
		if again := a.result(a.feed); got.GetOutcome() != stopped || !proto.Equal(got, again) || w.did() != 0 {
			t.Errorf("%q: got %v, then %v", text, got, again)
		}
	}
}

func TestNoStateDir(t *testing.T) {
	w := newWorker()
	a := start(t, config(w, Apply, ""))
	for order, want := range map[*v1.Order]v1.OrderOutcome{apply(idA): refused, restore(idB): refused, plan("order-cccccccccccc"): done} {
		a.feed.Order(order)
		if got := a.result(a.feed); got.GetOutcome() != want || want == refused && !strings.Contains(got.GetMessage(), "--state-dir") {
			t.Errorf("%s: %v", word(order), got)
		}
	}
	a.feed.Order(plan("order-cccccccccccc"))
	a.result(a.feed)
	if w.did() != 1 {
		t.Errorf("done %d times", w.did())
	}
}

func TestStorageThatForgets(t *testing.T) {
	w := newWorker()
	c := config(w, Apply, t.TempDir())
	c.Storage = func(string) error { return errors.New("it is in memory") }
	a := start(t, c)
	a.feed.Order(apply(idA))
	if got := a.result(a.feed); got.GetOutcome() != refused || got.GetMessage() != "it is in memory" || w.did() != 0 {
		t.Errorf("got %v", got)
	}
}

// An order that cannot be recorded is not done.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	w := newWorker()
	a := start(t, config(w, Apply, dir))
	a.settled()
	// A folder in the way stands for a disk that takes nothing: it keeps root out too.
	if err := os.MkdirAll(filepath.Join(dir, folder, unfinishedName), 0o700); err != nil {
		t.Fatal(err)
	}
	a.feed.Order(apply(idA))
	if got := a.result(a.feed); got.GetOutcome() != refused || !strings.Contains(got.GetMessage(), "cannot record") || w.did() != 0 {
		t.Errorf("got %v", got)
	}
}

func TestTwoAgents(t *testing.T) {
	dir := t.TempDir()
	start(t, config(newWorker(), Apply, dir))
	if _, err := Open(config(newWorker(), Apply, dir)); !errors.Is(err, ErrTwoAgents) {
		t.Errorf("got %v", err)
	}
}

// Results go out on each new stream until one aggregator holds them, also over a restart.
func TestUntilAcknowledged(t *testing.T) {
	dir := t.TempDir()
	w := newWorker()
	a := start(t, config(w, Apply, dir))
	a.feed.Order(apply(idA))
	a.result(a.feed)
	other := a.open()
	a.result(other)
	other.Acknowledge(idA)
	other.Acknowledge("an-order-that-nobody-gave")
	a.settled()
	a.quiet(a.open())
	a.stop()
	a = start(t, config(w, Apply, dir))
	a.quiet(a.feed)
	a.feed.Order(apply(idA))
	if got := a.result(a.feed); got.GetOutcome() != done {
		t.Errorf("asked again: %v", got)
	}
}

// Where the stream that asked is gone, the result goes to those that are there.
func TestResultFindsAnotherStream(t *testing.T) {
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, t.TempDir()))
	other := a.open()
	a.feed.Order(apply(idA))
	<-w.begun
	a.feed.Close()
	close(w.hold)
	if got := a.result(other); got.GetOutcome() != done {
		t.Errorf("got %v", got)
	}
}

func TestLargeResultsComeInParts(t *testing.T) {
	w := newWorker()
	w.result.Message = strings.Repeat("x", 3*orderform.MaxPart)
	a := start(t, config(w, Apply, t.TempDir()))
	a.feed.Order(apply(idA))
	if got := a.result(a.feed); len(got.GetMessage()) != 3*orderform.MaxPart {
		t.Errorf("%d bytes arrived", len(got.GetMessage()))
	}
	w.result.Message = strings.Repeat("y", orderform.MaxResult)
	a.feed.Order(apply(idB))
	if got := a.result(a.feed); got.GetOutcome() != done || !strings.Contains(got.GetMessage(), "larger than may be sent") {
		t.Errorf("got %.300s", got)
	}
	w.result.Message = "not \xff UTF-8"
	a.feed.Order(apply("order-cccccccccccc"))
	if got := a.result(a.feed); got.GetOutcome() != done || !strings.Contains(got.GetMessage(), `not \xff UTF-8`) {
		t.Errorf("got %v", got)
	}
}

// A slow stream gets the latest progress alone, and none after the result.
func TestSlowStream(t *testing.T) {
	w := newWorker()
	a := start(t, config(w, Apply, t.TempDir()))
	a.feed.Order(apply(idA))
	<-w.begun
	for {
		a.settled()
		a.feed.mu.Lock()
		n, loaded := len(a.feed.queue), len(a.feed.queue) > 0 && a.feed.queue[0].load != nil
		a.feed.mu.Unlock()
		if n > 1 {
			t.Fatalf("%d messages wait", n)
		}
		if loaded {
			break
		}
	}
	if got := a.next(a.feed); got.GetResult() == nil {
		t.Errorf("got %v", got)
	}
	a.quiet(a.feed)
}

// So many orders are remembered; those that may have changed the node are not forgotten to make room while they could still
// be sent again.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	w := newWorker()
	c := config(w, Apply, dir)
	now := time.Unix(1_800_000_000, 0)
	c.Now = func() time.Time { return now }
	c.limits = limits{records: 4, bytes: 1 << 20, age: 24 * time.Hour, settled: 2 * time.Hour}
	a := start(t, c)
	give := func(order *v1.Order) *v1.OrderResult {
		now = now.Add(time.Second)
		a.feed.Order(order)
		return a.result(a.feed)
	}
	give(apply(idA))
	for i := range 10 {
		give(plan(fmt.Sprintf("order-%012d", i)))
	}
	a.settled()
	if len(a.book.records) != 4 || a.book.records[idA] == nil {
		t.Errorf("%d records; that of the apply is %v", len(a.book.records), a.book.records[idA])
	}
	for _, id := range []string{idB, "order-cccccccccccc", "order-dddddddddddd"} {
		give(apply(id))
	}
	if got := give(apply("order-eeeeeeeeeeee")); got.GetOutcome() != refused || !strings.Contains(got.GetMessage(), "too many orders") {
		t.Errorf("got %v", got)
	}
	now = now.Add(3 * time.Hour)
	if got := give(apply("order-eeeeeeeeeeee")); got.GetOutcome() != done {
		t.Errorf("got %v", got)
	}
	now = now.Add(25 * time.Hour)
	give(plan("order-ffffffffffff"))
	a.settled()
	files, err := os.ReadDir(filepath.Join(dir, folder))
	if err != nil || len(a.book.records) != 1 || len(files) != 3 {
		t.Errorf("%d records, files %v, %v", len(a.book.records), files, err)
	}
}

func TestBytesAreBounded(t *testing.T) {
	w := newWorker()
	w.result.Message = strings.Repeat("x", 1000)
	c := config(w, Apply, t.TempDir())
	c.limits = limits{records: 100, bytes: 3500, age: time.Hour, settled: time.Hour}
	a := start(t, c)
	for i := range 10 {
		a.feed.Order(plan(fmt.Sprintf("order-%012d", i)))
		a.result(a.feed)
	}
	a.settled()
	if len(a.book.records) > 4 {
		t.Errorf("%d records of 1000 bytes are kept", len(a.book.records))
	}
}
