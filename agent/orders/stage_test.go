package orders

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	patient  = 10 * time.Second
	refused  = v1.OrderOutcome_ORDER_OUTCOME_REFUSED
	done     = v1.OrderOutcome_ORDER_OUTCOME_DONE
	fail     = v1.OrderOutcome_ORDER_OUTCOME_FAILED
	stopped  = v1.OrderOutcome_ORDER_OUTCOME_INTERRUPTED
	idA, idB = "order-aaaaaaaaaaaa", "order-bbbbbbbbbbbb"
)

// worker is a Work that counts, and waits where a test says so.
type worker struct {
	mu    sync.Mutex
	ids   []string
	begun chan string
	// hold, where it is not nil, has the work wait for it or for the end of ctx.
	hold   chan struct{}
	result *v1.OrderResult
}

func newWorker() *worker {
	return &worker{begun: make(chan string, 100), result: &v1.OrderResult{Outcome: done, Message: "did it"}}
}

func (w *worker) work(ctx context.Context, order *v1.Order, progress Progress) *v1.OrderResult {
	w.mu.Lock()
	w.ids = append(w.ids, order.GetId())
	w.mu.Unlock()
	progress("working", 1, 2)
	w.begun <- order.GetId()
	if w.hold != nil {
		select {
		case <-w.hold:
		case <-ctx.Done():
			return &v1.OrderResult{Outcome: fail, Message: ctx.Err().Error()}
		}
	}
	result, _ := proto.Clone(w.result).(*v1.OrderResult)
	return result
}

func (w *worker) did() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ids)
}

// agent is a book that runs, with one stream.
type agent struct {
	*testing.T
	book *Book
	feed *Feed
	stop func()
	// audit is filled by the book's goroutine; read it after stop.
	audit []Entry
}

func config(w *worker, policy Policy, dir string) Config {
	return Config{Node: "worker-1", Policy: policy, StateDir: dir, Work: w.work, Log: slog.New(slog.DiscardHandler)}
}

func start(t *testing.T, c Config) *agent {
	t.Helper()
	a := &agent{T: t}
	c.Record = func(e Entry) { a.audit = append(a.audit, e) }
	book, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	a.book = book
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- book.Run(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.stop)
	a.feed = a.open()
	return a
}

func (a *agent) open() *Feed {
	a.Helper()
	feed, err := a.book.Feed(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return feed
}

// result waits for a whole result on a feed, and passes over progress.
func (a *agent) result(f *Feed) *v1.OrderResult {
	a.Helper()
	var encoded []byte
	for {
		update := a.next(f)
		part := update.GetResult()
		encoded = append(encoded, part.GetData()...)
		if !part.GetLast() {
			continue
		}
		result := &v1.OrderResult{}
		if err := proto.Unmarshal(encoded, result); err != nil {
			a.Fatal(err)
		}
		return result
	}
}

func (a *agent) next(f *Feed) *v1.OrderUpdate {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), patient)
	defer cancel()
	update, err := f.Next(ctx)
	if err != nil {
		a.Fatalf("nothing comes: %v", err)
	}
	return update
}

// quiet holds that a feed has nothing to say.
func (a *agent) quiet(f *Feed) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), 50*time.Millisecond)
	defer cancel()
	if update, err := f.Next(ctx); err == nil {
		a.Errorf("it says %v", update)
	}
}

// settled waits until the book has done all that it was told.
func (a *agent) settled() {
	a.Helper()
	settled := make(chan struct{})
	a.book.inbox <- func(context.Context) { close(settled) }
	<-settled
}

func plan(id string) *v1.Order {
	return &v1.Order{
		Id: id, Kind: v1.OrderKind_ORDER_KIND_PLAN, Target: v1.Target_TARGET_NFTABLES, Caller: "jane",
		SentAt: timestamppb.New(time.Unix(1000, 0)), Deadline: timestamppb.New(time.Unix(1300, 0)),
	}
}

func apply(id string) *v1.Order {
	order := plan(id)
	order.Kind, order.PlanDigest = v1.OrderKind_ORDER_KIND_APPLY, make([]byte, 32)
	return order
}

func restore(id string) *v1.Order {
	order := plan(id)
	order.Kind, order.Target, order.BackupId = v1.OrderKind_ORDER_KIND_RESTORE, v1.Target_TARGET_UNSPECIFIED, "b1"
	return order
}

// killed leaves in dir what an agent leaves that is killed while it works on an order.
func killed(t *testing.T, dir string, order *v1.Order) {
	t.Helper()
	w := newWorker()
	w.hold = make(chan struct{})
	a := start(t, config(w, Apply, dir))
	a.feed.Order(order)
	<-w.begun
	saved := filepath.Join(dir, "saved")
	if err := os.CopyFS(saved, os.DirFS(filepath.Join(dir, folder))); err != nil {
		t.Fatal(err)
	}
	a.stop()
	if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(saved, filepath.Join(dir, folder)); err != nil {
		t.Fatal(err)
	}
}
