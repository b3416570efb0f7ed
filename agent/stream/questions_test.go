package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// asking runs an agent with this source, and returns its stream after the first report.
func asking(t *testing.T, source *node, change func(*Config)) *call {
	t.Helper()
	f, dial := serveFake(t)
	config := testConfig(source, dial)
	if change != nil {
		change(&config)
	}
	start(t, config)
	c := f.next(t)
	c.welcome(never)
	c.recvReport()
	return c
}

func (c *call) ask(request *v1.DetailRequest) {
	c.t.Helper()
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_DetailRequest{DetailRequest: request}})
}

func (c *call) callOff(id uint64) {
	c.t.Helper()
	c.send(&v1.ConnectResponse{Message: &v1.ConnectResponse_DetailCancel{DetailCancel: &v1.DetailCancel{Id: id}}})
}

// answer takes the parts of one answer.
func (c *call) answer(id uint64) (items []string, parts int, failed string) {
	c.t.Helper()
	for {
		part := c.recv().GetDetailPart()
		if part.GetId() != id {
			c.t.Fatalf("got a part of %d, want one of %d", part.GetId(), id)
		}
		size := 0
		for _, item := range part.GetItems() {
			size += len(item)
		}
		if size > 512<<10 || proto.Size(part) > maxMessage {
			c.t.Fatalf("a part of %d bytes of items", size)
		}
		items, parts = append(items, part.GetItems()...), parts+1
		if part.GetLast() {
			return items, parts, part.GetError()
		}
		if part.GetError() != "" {
			c.t.Fatalf("a part that is not the last one says %q", part.GetError())
		}
	}
}

func setQuestion(id uint64, name string) *v1.DetailRequest {
	return &v1.DetailRequest{Id: id, Detail: &v1.DetailRequest_Ipset{Ipset: name}}
}

// Every kind of question reaches the node as it was asked, names to the byte, and what the node says comes back in its order.
func TestEveryKindOfDetailIsAnswered(t *testing.T) {
	var got *v1.DetailRequest
	c := asking(t, &node{detail: func(_ context.Context, wanted *v1.DetailRequest, emit func([]string) error) error {
		got = wanted
		return errors.Join(emit([]string{"one", "two"}), emit([]string{"three"}))
	}}, nil)
	for name, question := range map[string]*v1.DetailRequest{
		"set":     setQuestion(1, "$(reboot)\n\x1b[2J\\xff"),
		"chain":   {Id: 2, Detail: &v1.DetailRequest_Chain{Chain: &v1.ChainQuery{Section: 6, Table: "nat", Chain: "`reboot`"}}},
		"service": {Id: 3, Detail: &v1.DetailRequest_Service{Service: &v1.ServiceQuery{Protocol: "TCP", Addresses: []string{"10.96.0.1"}, Port: 443}}},
	} {
		c.ask(question)
		items, parts, failed := c.answer(question.GetId())
		if fmt.Sprint(items) != "[one two three]" || parts != 1 || failed != "" {
			t.Errorf("%s: %v in %d parts, %q", name, items, parts, failed)
		}
		if diff := cmp.Diff(question, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s, as asked (-) and as it came (+):\n%s", name, diff)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, tt := range map[string]struct {
		detail func(context.Context, *v1.DetailRequest, func([]string) error) error
		items  int
		failed string
	}{
		"many": {func(_ context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
			for range 10 {
				if err := emit([]string{long}); err != nil {
					return err
				}
			}
			return nil
		}, 10, ""},
		"empty items": {func(_ context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
			return emit(make([]string, 100_000))
		}, 100_000, ""},
		"without end": {func(_ context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
			for {
				if err := emit([]string{long}); err != nil {
					return err
				}
			}
		}, maxAnswer / len(long), errTooLarge.Error()},
		"an item that is too long": {func(_ context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
			return emit([]string{"a", strings.Repeat("x", 1<<20)})
		}, 1, errNotText.Error()},
		"broken UTF-8": {func(_ context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
			return emit([]string{"a", "\xff", "b"})
		}, 1, errNotText.Error()},
		"half, and why": {func(_ context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
			return errors.Join(emit([]string{"a"}), errors.New("broken \xff"+strings.Repeat("x", 2000)))
		}, 1, "broken \uFFFD" + strings.Repeat("x", 1016)},
	} {
		t.Run(name, func(t *testing.T) {
			c := asking(t, &node{detail: tt.detail}, nil)
			c.ask(setQuestion(7, "S"))
			items, _, failed := c.answer(7)
			if len(items) != tt.items || failed != tt.failed {
				t.Errorf("%d items (%q), want %d (%q)", len(items), failed, tt.items, tt.failed)
			}
		})
	}
}

func TestAnswersHaveADeadline(t *testing.T) {
	c := asking(t, &node{detail: func(ctx context.Context, _ *v1.DetailRequest, emit func([]string) error) error {
		_ = emit([]string{"first"})
		<-ctx.Done()
		return ctx.Err()
	}}, func(config *Config) { config.limits.answer = 50 * time.Millisecond })
	c.ask(setQuestion(1, "S"))
	if items, _, failed := c.answer(1); len(items) != 1 || failed != "it was not read and sent within 50ms" {
		t.Errorf("%v, %q", items, failed)
	}
}

// A question that is called off stops the reading; one that waits is not begun. The next is answered.
func TestQuestionsAreCalledOff(t *testing.T) {
	begun := make(chan string, 3)
	c := asking(t, &node{detail: func(ctx context.Context, wanted *v1.DetailRequest, emit func([]string) error) error {
		begun <- wanted.GetIpset()
		if wanted.GetIpset() == "third" {
			return emit([]string{"x"})
		}
		<-ctx.Done()
		return ctx.Err()
	}}, nil)
	c.ask(setQuestion(1, "first"))
	c.ask(setQuestion(2, "second"))
	c.ask(setQuestion(3, "third"))
	if got := <-begun; got != "first" {
		t.Fatalf("began with %q", got)
	}
	c.callOff(2)
	c.callOff(99) // never asked: nothing happens
	c.callOff(1)
	for id := uint64(1); id <= 2; id++ {
		if items, _, failed := c.answer(id); len(items) != 0 || failed != errCalledOff.Error() {
			t.Errorf("question %d: %v, %q", id, items, failed)
		}
	}
	if items, _, failed := c.answer(3); len(items) != 1 || failed != "" {
		t.Errorf("the third: %v, %q", items, failed)
	}
	if got := <-begun; got != "third" {
		t.Errorf("%q was begun though it was called off", got)
	}
}
