package orders

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/orderform"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Whatever arrives is answered under its own id, and a file is named after a good id alone.
func FuzzOrder(f *testing.F) {
	for _, order := range []*v1.Order{plan(idA), apply(idA), restore(idA), {Id: "../../x"}, {}} {
		encoded, err := proto.Marshal(order)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		order := &v1.Order{}
		if proto.Unmarshal(encoded, order) != nil {
			t.Skip()
		}
		w := newWorker()
		a := start(t, config(w, Apply, ""))
		a.feed.Order(order)
		got := a.result(a.feed)
		if got.GetId() != order.GetId() || got.GetOutcome() == done && (w.did() != 1 || orderform.Changes(order)) {
			t.Errorf("order %v: %v", order, got)
		}
		if checkForm(order) == nil && orderform.CheckID(order.GetId()) != nil {
			t.Errorf("id %q was let through", order.GetId())
		}
	})
}

// A record of whatever content is that of an order that was taken.
func FuzzTaken(f *testing.F) {
	f.Add([]byte(`{"taken_at":"2026-11-30T20:00:00Z","begun":true,"order":{"id":"` + idA + `"}}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if r := parseTaken(idA, text); r.id != idA || r.order == nil && !r.begun {
			t.Errorf("%q: %+v", text, r)
		}
	})
}
