package collect

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEachAttribute(t *testing.T) {
	stop := errors.New("enough")
	for name, test := range map[string]struct {
		data []byte
		want []string
		err  error
	}{
		"none":                         {nil, nil, nil},
		"two, with padding":            {joined(attribute(1, []byte{9}), attribute(2, []byte{1, 2, 3, 4})), []string{"1 [9]", "2 [1 2 3 4]"}, nil},
		"flags of the type":            {joined(attribute(7|nested, nil), attribute(8|network32, []byte{1})), []string{"7 []", "8 [1]"}, nil},
		"the last without its padding": {attribute(1, []byte{9})[:5], []string{"1 [9]"}, nil},
		"one byte too many":            {append(attribute(1, []byte{1, 2, 3, 4}), 0), []string{"1 [1 2 3 4]"}, errMalformed},
		"a length below a header":      {[]byte{3, 0, 1, 0}, nil, errMalformed},
		"a length of nothing":          {[]byte{0, 0, 1, 0}, nil, errMalformed},
		"a length beyond the end":      {[]byte{9, 0, 1, 0, 1, 2, 3, 4}, nil, errMalformed},
		"a visitor that stops":         {joined(attribute(99, nil), attribute(1, nil)), []string{"99 []"}, stop},
	} {
		var got []string
		err := eachAttribute(test.data, func(kind uint16, value []byte) error {
			got = append(got, fmt.Sprintf("%d %v", kind, value))
			if kind == 99 {
				return stop
			}
			return nil
		})
		if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.err) {
			t.Errorf("%s: error %v, want %v (-want +got):\n%s", name, err, test.err, diff)
		}
	}
}

func FuzzEachAttribute(f *testing.F) {
	f.Add(joined(attribute(1, []byte{9}), attribute(2, []byte{1, 2, 3, 4})))
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		err := eachAttribute(data, func(_ uint16, value []byte) error {
			total += len(value) + attributeHeaderSize
			return nil
		})
		if total > len(data) {
			t.Errorf("%d bytes visited of %d (%v)", total, len(data), err)
		}
	})
}
