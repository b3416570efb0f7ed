package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/orderform"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	idA, idB = "order-aaaaaaaaaaaa", "order-bbbbbbbbbbbb"
	done     = v1.OrderOutcome_ORDER_OUTCOME_DONE
)

// wire is a node's stream that keeps what is sent on it.
type wire struct {
	mu   sync.Mutex
	sent []*v1.ConnectResponse
	err  error
}

func (w *wire) Send(message *v1.ConnectResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, message)
	return w.err
}

// orders and acknowledged are the ids of what was sent, in order.
func (w *wire) orders() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, message := range w.sent {
		if order := message.GetOrder(); order != nil {
			ids = append(ids, order.GetId())
		}
	}
	return ids
}

func (w *wire) acknowledged() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, message := range w.sent {
		if acknowledgement := message.GetOrderAcknowledgement(); acknowledgement != nil {
			ids = append(ids, acknowledgement.GetId())
		}
	}
	return ids
}

// stage is a desk whose clock is the test's.
type stage struct {
	*testing.T
	*Desk
	now     time.Time
	unasked []string
}

func setUp(t *testing.T, change func(*Config)) *stage {
	t.Helper()
	s := &stage{T: t, now: time.Unix(1_800_000_000, 0)}
	config := Config{
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return s.now },
		Unasked: func(node string, result *v1.OrderResult) { s.unasked = append(s.unasked, node+" "+result.GetId()) },
	}
	config.limits = defaultLimits()
	if change != nil {
		change(&config)
	}
	s.Desk = New(config)
	return s
}

func (s *stage) join(node string) (*Session, *wire) {
	s.Helper()
	w := &wire{}
	session, err := s.Join(node, w)
	if err != nil {
		s.Fatal(err)
	}
	return session, w
}

func (s *stage) place(node string, order *v1.Order) *Follower {
	s.Helper()
	f, err := s.Place(node, order, time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	return f
}

// next is what a follower hears, at once.
func (s *stage) next(f *Follower) (*v1.OrderProgress, *v1.OrderResult, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	return f.Next(ctx)
}

func (s *stage) ends(f *Follower, want *v1.OrderResult) {
	s.Helper()
	if _, got, err := s.next(f); err != nil || !proto.Equal(got, want) {
		s.Errorf("it ended with %v, %v; want %v", got, err, want)
	}
}

func (s *stage) fails(f *Follower, want error) {
	s.Helper()
	if _, got, err := s.next(f); !errors.Is(err, want) {
		s.Errorf("it ended with %v, %v; want %v", got, err, want)
	}
}

func plan(id string) *v1.Order {
	return &v1.Order{Id: id, Kind: v1.OrderKind_ORDER_KIND_PLAN, Target: v1.Target_TARGET_NFTABLES}
}

func resultOf(node, id string) *v1.OrderResult {
	return &v1.OrderResult{Id: id, Node: node, Kind: v1.OrderKind_ORDER_KIND_PLAN, Outcome: done, Message: "a plan"}
}

// say sends a result in pieces.
func (s *stage) say(session *Session, result *v1.OrderResult, piece int) {
	s.Helper()
	encoded, err := proto.Marshal(result)
	if err != nil {
		s.Fatal(err)
	}
	for last := false; !last; {
		n := min(piece, len(encoded))
		last = n == len(encoded)
		if err := session.Update(part(result.GetId(), encoded[:n], last)); err != nil {
			s.Fatal(err)
		}
		encoded = encoded[n:]
	}
}

func part(id string, data []byte, last bool) *v1.OrderUpdate {
	return &v1.OrderUpdate{Id: id, Update: &v1.OrderUpdate_Result{Result: &v1.OrderResultPart{Data: data, Last: last}}}
}

func progress(id, step string) *v1.OrderUpdate {
	return &v1.OrderUpdate{Id: id, Update: &v1.OrderUpdate_Progress{Progress: &v1.OrderProgress{Step: step}}}
}

func TestOrderGoesThereAndBack(t *testing.T) {
	s := setUp(t, nil)
	session, w := s.join("node-a")
	f := s.place("node-a", plan(idA))
	sent := w.sent[0].GetOrder()
	if sent.GetDeadline().AsTime().Sub(sent.GetSentAt().AsTime()) != time.Minute || !sent.GetSentAt().AsTime().Equal(s.now) {
		t.Errorf("sent %v", sent)
	}
	for _, step := range []string{"reading", "planning"} {
		if err := session.Update(progress(idA, step)); err != nil {
			t.Fatal(err)
		}
	}
	// A reader that was slow hears the latest.
	if got, _, err := s.next(f); err != nil || got.GetStep() != "planning" {
		t.Errorf("got %v, %v", got, err)
	}
	want := resultOf("node-a", idA)
	s.say(session, want, 7)
	s.ends(f, want)
	if got := fmt.Sprint(w.acknowledged()); got != "["+idA+"]" {
		t.Errorf("acknowledged %s", got)
	}
	// Who asks again gets the same, and the node is not asked again.
	s.ends(s.place("node-a", plan(idA)), want)
	if got := w.orders(); len(got) != 1 {
		t.Errorf("sent %v", got)
	}
	if len(s.unasked) > 0 {
		t.Errorf("unasked: %v", s.unasked)
	}
}

func TestSameIDOtherContent(t *testing.T) {
	s := setUp(t, nil)
	s.join("node-a")
	s.join("node-b")
	s.place("node-a", plan(idA))
	other := plan(idA)
	other.Target = v1.Target_TARGET_IPTABLES
	for node, order := range map[string]*v1.Order{"node-a": other, "node-b": plan(idA)} {
		if _, err := s.Place(node, order, time.Minute); !errors.Is(err, ErrOtherOrder) {
			t.Errorf("%s: %v", node, err)
		}
	}
	// Who asks, and until when, is not part of it.
	another := plan(idA)
	another.Caller, another.TokenId = "joe", "t2"
	s.place("node-a", another)
}

// A call that is made twice at once is one order with two followers.
func TestJoinedCalls(t *testing.T) {
	s := setUp(t, nil)
	session, w := s.join("node-a")
	one, two := s.place("node-a", plan(idA)), s.place("node-a", plan(idA))
	s.say(session, resultOf("node-a", idA), 1000)
	s.ends(one, resultOf("node-a", idA))
	s.ends(two, resultOf("node-a", idA))
	if got := w.orders(); len(got) != 1 {
		t.Errorf("sent %v", got)
	}
}

func TestNoStream(t *testing.T) {
	s := setUp(t, nil)
	if _, err := s.Place("node-a", plan(idA), time.Minute); !errors.Is(err, ErrNoStream) {
		t.Errorf("got %v", err)
	}
	session, _ := s.join("node-a")
	session.Close()
	if _, err := s.Place("node-a", plan(idA), time.Minute); !errors.Is(err, ErrNoStream) {
		t.Errorf("after the stream ended: %v", err)
	}
}

// The node's stream breaks in the middle, also in the middle of a result: the next one gets the order again.
func TestReconnect(t *testing.T) {
	s := setUp(t, nil)
	session, _ := s.join("node-a")
	f := s.place("node-a", plan(idA))
	if err := session.Update(part(idA, []byte("half of"), false)); err != nil {
		t.Fatal(err)
	}
	again, w := s.join("node-a")
	session.Close() // the end of the former stream comes late
	if got := fmt.Sprint(w.orders()); got != "["+idA+"]" {
		t.Errorf("sent %s", got)
	}
	s.say(again, resultOf("node-a", idA), 5)
	s.ends(f, resultOf("node-a", idA))
	if s.pieces != 0 {
		t.Errorf("%d bytes of pieces are left", s.pieces)
	}
	if _, w := s.join("node-a"); len(w.orders()) != 0 {
		t.Errorf("what is over is sent again: %v", w.orders())
	}
}

// A stream that does not take the order ends; the order waits for the next one.
func TestSendFails(t *testing.T) {
	s := setUp(t, nil)
	_, w := s.join("node-a")
	w.err = errors.New("not taken")
	s.place("node-a", plan(idA))
	if _, w := s.join("node-a"); len(w.orders()) != 1 {
		t.Errorf("sent %v", w.orders())
	}
}

// What one node says of another's order counts for nothing.
func TestAnotherNodesOrder(t *testing.T) {
	s := setUp(t, nil)
	_, wa := s.join("node-a")
	hostile, wb := s.join("node-b")
	f := s.place("node-a", plan(idA))
	s.say(hostile, resultOf("node-a", idA), 1000)
	s.say(hostile, resultOf("node-b", idA), 1000)
	if err := hostile.Update(progress(idA, "all is well")); err != nil {
		t.Fatal(err)
	}
	s.fails(f, context.DeadlineExceeded)
	if len(wb.orders()) != 0 || len(wa.acknowledged()) != 0 {
		t.Errorf("node-b got %v", wb.orders())
	}
}

// Results that nobody waits for are acknowledged, so that they are not sent for ever, and told.
func TestUnasked(t *testing.T) {
	s := setUp(t, nil)
	session, w := s.join("node-a")
	s.say(session, resultOf("node-a", idA), 1000)
	s.say(session, resultOf("node-a", idB), 3)
	if got := fmt.Sprint(w.acknowledged()); got != "["+idA+" "+idB+"]" {
		t.Errorf("acknowledged %s", got)
	}
	// What came in many pieces was passed over without being kept.
	if got := fmt.Sprint(s.unasked); got != "[node-a "+idA+"]" || s.pieces != 0 || len(session.skipping) != 0 {
		t.Errorf("unasked %s, %d bytes kept", got, s.pieces)
	}
}

func TestTooLate(t *testing.T) {
	s := setUp(t, nil)
	session, w := s.join("node-a")
	f := s.place("node-a", plan(idA))
	s.now = s.now.Add(time.Minute + 9*time.Second)
	s.sweep()
	s.fails(f, context.DeadlineExceeded) // nothing yet
	s.now = s.now.Add(2 * time.Second)
	s.sweep()
	s.fails(f, ErrTooLate)
	// It ended on the node all the same: who asks again is told, by the node.
	s.say(session, resultOf("node-a", idA), 1000)
	f = s.place("node-a", plan(idA))
	if got := w.orders(); len(got) != 2 {
		t.Errorf("sent %v", got)
	}
	s.say(session, resultOf("node-a", idA), 1000)
	s.ends(f, resultOf("node-a", idA))
}

func TestBadResults(t *testing.T) {
	for name, spoil := range map[string]func(*v1.OrderResult) []byte{
		"of another order": func(r *v1.OrderResult) []byte { r.Id = idB; return nil },
		"of another node":  func(r *v1.OrderResult) []byte { r.Node = "node-b"; return nil },
		"of another kind":  func(r *v1.OrderResult) []byte { r.Kind = v1.OrderKind_ORDER_KIND_APPLY; return nil },
		"without an end":   func(r *v1.OrderResult) []byte { r.Outcome = 0; return nil },
		"garbage":          func(*v1.OrderResult) []byte { return []byte{0xff, 0xff, 0xff} },
	} {
		s := setUp(t, nil)
		session, w := s.join("node-a")
		f := s.place("node-a", plan(idA))
		result := resultOf("node-a", idA)
		encoded := spoil(result)
		if encoded == nil {
			encoded, _ = proto.Marshal(result)
		}
		if err := session.Update(part(idA, encoded, true)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := s.next(f); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if len(w.acknowledged()) != 1 {
			t.Errorf("%s: it would be sent for ever", name)
		}
	}
}

func TestMalformedUpdates(t *testing.T) {
	s := setUp(t, nil)
	session, _ := s.join("node-a")
	for name, update := range map[string]*v1.OrderUpdate{
		"no id":          progress("", "x"),
		"a long id":      progress(strings.Repeat("x", 65), "x"),
		"nothing in it":  {Id: idA},
		"too large part": part(idA, make([]byte, orderform.MaxPart+1), true),
	} {
		if err := session.Update(update); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = session.Update(part(fmt.Sprint("order-of-nobody-", i), []byte("x"), false))
	}
	if err == nil {
		t.Error("a hundred results are begun at once")
	}
}

func TestLimits(t *testing.T) {
	s := setUp(t, func(c *Config) { c.limits.total = 6 })
	s.join("node-a")
	s.join("node-b")
	for i := range 4 {
		s.place("node-a", plan(fmt.Sprintf("order-a-%012d", i)))
	}
	if _, err := s.Place("node-a", plan(idA), time.Minute); !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "node-a") {
		t.Errorf("got %v", err)
	}
	s.place("node-b", plan("order-b-000000000001"))
	s.place("node-b", plan("order-b-000000000002"))
	if _, err := s.Place("node-b", plan(idB), time.Minute); !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v", err)
	}
}

// A node that sends more than may be has its order end, and nothing of it is held.
func TestTooLarge(t *testing.T) {
	s := setUp(t, nil)
	session, w := s.join("node-a")
	f := s.place("node-a", plan(idA))
	piece := make([]byte, orderform.MaxPart)
	for range orderform.MaxResult/orderform.MaxPart + 3 {
		if err := session.Update(part(idA, piece, false)); err != nil {
			t.Fatal(err)
		}
	}
	s.fails(f, ErrTooLarge)
	if err := session.Update(part(idA, nil, true)); err != nil || s.pieces != 0 || len(w.acknowledged()) != 1 {
		t.Errorf("%v; %d bytes are held; acknowledged %v", err, s.pieces, w.acknowledged())
	}
}

func TestKeptResultsAreBounded(t *testing.T) {
	s := setUp(t, func(c *Config) { c.limits.kept, c.limits.keptBytes = 3, 400 })
	session, _ := s.join("node-a")
	for i := range 10 {
		s.now = s.now.Add(time.Second)
		id := fmt.Sprintf("order-%012d", i)
		s.place("node-a", plan(id))
		s.say(session, resultOf("node-a", id), 1000)
	}
	if len(s.orders) != 3 {
		t.Errorf("%d are kept", len(s.orders))
	}
	large := resultOf("node-a", idA)
	large.Message = strings.Repeat("x", 380)
	f := s.place("node-a", plan(idA))
	s.say(session, large, 1000)
	if len(s.orders) > 1 || s.keptBytes > 400 {
		t.Errorf("%d are kept, %d bytes", len(s.orders), s.keptBytes)
	}
	s.ends(f, large) // whoever follows has it
	s.now = s.now.Add(16 * time.Minute)
	s.sweep()
	if len(s.orders) != 0 || s.keptBytes != 0 {
		t.Errorf("%d are kept, %d bytes", len(s.orders), s.keptBytes)
	}
}

// Everything at once, for the race detector.
func TestConcurrent(t *testing.T) {
	s := New(Config{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	var all, runs sync.WaitGroup
	runs.Go(func() { s.Run(ctx) })
	for n := range 8 {
		all.Go(func() {
			node := fmt.Sprint("node-", n)
			w := &wire{}
			session, err := s.Join(node, w)
			if err != nil {
				t.Error(err)
				return
			}
			defer session.Close()
			for i := range 20 {
				id := fmt.Sprintf("order-%d-%012d", n, i)
				f, err := s.Place(node, plan(id), time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				all.Go(func() {
					for {
						_, result, err := f.Next(ctx)
						if err != nil || result != nil {
							return
						}
					}
				})
				encoded, _ := proto.Marshal(resultOf(node, id))
				if err := errors.Join(session.Update(progress(id, "x")), session.Update(part(id, encoded, true))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	cancel()
	runs.Wait()
}
