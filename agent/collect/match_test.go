package collect

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMarkUseMentions(t *testing.T) {
	const bit = 0x4000
	tests := map[string]struct {
		use  markUse
		want bool
	}{
		"--or-mark 0x4000":          {markUse{bit, bit}, true},
		"--set-mark 0x4000":         {markUse{bit, ^uint32(0)}, true},
		"--xor-mark 0x4000":         {markUse{bit, 0}, true},
		"--and-mark ~0x4000":        {markUse{0, bit}, true},
		"--mark 0x0/0x4000":         {markUse{0, bit}, true},
		"--mark 0x4001/0x4001":      {markUse{bit | 1, bit | 1}, true},
		"--mark 0x1":                {markUse{1, ^uint32(0)}, false},
		"--set-mark 0":              {markUse{0, ^uint32(0)}, false},
		"--mark 0x8000/0x8000":      {markUse{0x8000, 0x8000}, false},
		"--mark 0x0/0xc000":         {markUse{0, 0xc000}, false},
		"nothing at all, no change": {markUse{0, 0}, false},
	}
	for name, test := range tests {
		if got := test.use.mentions(bit); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Offsets are those of struct xt_set_info_target_v0 to v3, written by hand.
func TestSetsOfTarget(t *testing.T) {
	info := func(size int, indices map[int]byte) []byte {
		data := slices.Repeat([]byte{0xff}, size)
		for at, index := range indices {
			data[at], data[at+1] = index, 0
		}
		return data
	}
	tests := map[string]struct {
		revision uint32
		info     []byte
		want     []uint16
	}{
		"v0, add and delete":  {0, info(64, map[int]byte{0: 1, 32: 2}), []uint16{1, 2}},
		"v1, add":             {1, info(8, map[int]byte{0: 3}), []uint16{3}},
		"v2, delete":          {2, info(16, map[int]byte{4: 4}), []uint16{4}},
		"v3, map":             {3, info(20, map[int]byte{8: 5}), []uint16{5}},
		"v3, all":             {3, info(20, map[int]byte{0: 1, 4: 2, 8: 3}), []uint16{1, 2, 3}},
		"v1 has no third":     {1, info(20, map[int]byte{8: 5}), nil},
		"yet to come":         {4, info(20, map[int]byte{0: 1}), nil},
		"cut":                 {3, []byte{1, 0, 0}, nil},
		"cut after the first": {3, []byte{1, 0, 0, 0, 2}, []uint16{1}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, setsOfTarget(test.revision, test.info)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
