package orders

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Whatever a node says, what is held stays counted, and only its own orders end.
func FuzzUpdate(f *testing.F) {
	whole, err := proto.Marshal(resultOf("node-a", idA))
	if err != nil {
		f.Fatal(err)
	}
	for _, update := range []*v1.OrderUpdate{progress(idA, "x"), part(idA, whole, true), part(idA, whole[:5], false), part(idB, whole, true), {}} {
		encoded, err := proto.Marshal(update)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded, encoded)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := setUp(t, nil)
		session, _ := s.join("node-a")
		s.join("node-b")
		s.place("node-a", plan(idA))
		s.place("node-b", plan(idB))
		held := 0
		for _, encoded := range [][]byte{first, second} {
			update := &v1.OrderUpdate{}
			if proto.Unmarshal(encoded, update) == nil {
				_ = session.Update(update)
			}
		}
		for _, pieces := range session.pieces {
			held += len(pieces)
		}
		if s.pieces != held || s.orders[idB].over() {
			t.Errorf("%d bytes are counted, %d held; the other node's order is over: %v", s.pieces, held, s.orders[idB].over())
		}
		session.Close()
		s.now = s.now.Add(time.Hour)
		s.sweep()
		if s.pieces != 0 {
			t.Errorf("%d bytes are held by nobody", s.pieces)
		}
	})
}
