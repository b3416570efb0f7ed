package collect

import (
	"context"
	"errors"
	"testing"
)

// script is a reader that gives one prepared answer after the other.
type script struct {
	t       *testing.T
	answers []any // int: a reading; error
	asked   int
}

func (s *script) read(context.Context) (int, error) {
	s.t.Helper()
	if s.asked == len(s.answers) {
		s.t.Fatal("asked once too often")
	}
	answer := s.answers[s.asked]
	s.asked++
	if err, isError := answer.(error); isError {
		return 0, err
	}
	return answer.(int), nil
}

func TestAgreed(t *testing.T) {
	refused := errors.New("not permitted")
	for name, test := range map[string]struct {
		answers  []any
		want     int
		attempts uint32
		err      error
	}{
		"the first two agree":             {[]any{4, 4}, 4, 2, nil},
		"the third agrees":                {[]any{3, 4, 4}, 4, 3, nil},
		"back and forth is no agreement":  {[]any{3, 4, 3, 4, 3, 4, 3, 4}, 0, 8, errInconsistent},
		"a torn reading compares to none": {[]any{4, errTorn, 4, 4}, 4, 4, nil},
		"always torn":                     {[]any{errTorn, errTorn, errTorn, errTorn, errTorn, errTorn, errTorn, errTorn}, 0, 8, errInconsistent},
		"an error ends it":                {[]any{4, refused}, 0, 2, refused},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, answers: test.answers}
			got, attempts, err := agreed(t.Context(), s.read, func(a, b int) bool { return a == b })
			if got != test.want || attempts != test.attempts || !errors.Is(err, test.err) {
				t.Errorf("%d after %d readings, error %v; want %d, %d, %v", got, attempts, err, test.want, test.attempts, test.err)
			}
			if s.asked != len(test.answers) {
				t.Errorf("%d readings, want %d", s.asked, len(test.answers))
			}
		})
	}
}

// A reader that remembers the reading before reads once where nothing changed, and until two agree where something did.
func TestAgreedAfter(t *testing.T) {
	refused := errors.New("not permitted")
	for name, test := range map[string]struct {
		before   int
		answers  []any
		want     int
		attempts uint32
		err      error
	}{
		"as before":                       {4, []any{4}, 4, 1, nil},
		"changed since":                   {4, []any{5, 5}, 5, 2, nil},
		"changed back":                    {4, []any{5, 4, 4}, 4, 3, nil},
		"a torn reading compares to none": {4, []any{errTorn, 4, 4}, 4, 3, nil},
		"an error ends it":                {4, []any{refused}, 0, 1, refused},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, answers: test.answers}
			got, attempts, err := agreedAfter(t.Context(), &test.before, s.read, func(a, b int) bool { return a == b })
			if got != test.want || attempts != test.attempts || !errors.Is(err, test.err) || s.asked != len(test.answers) {
				t.Errorf("%d after %d readings, error %v; want %d, %d, %v", got, attempts, err, test.want, test.attempts, test.err)
			}
		})
	}
}

func TestRepeatEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	readings := 0
	_, attempts, err := repeat(ctx, func(context.Context) (int, error) {
		if readings++; readings == 3 {
			cancel()
		}
		return 0, errTorn
	})
	if !errors.Is(err, context.Canceled) || attempts != 3 {
		t.Errorf("%d readings, error %v", attempts, err)
	}
}
