package identity

import "time"

// expired is the same token as the API server would have given it an hour ago for 59 minutes, signed with its own key. The
// API server itself takes the copy whose times are the given ones, and refuses the expired one: nothing else is wrong with it.
func (s *stage) expired(token string) string {
	s.Helper()
	old := s.signedAgain(token, func(claims map[string]any) {
		now := time.Now()
		begin, end := now.Add(-time.Hour).Unix(), now.Add(-time.Minute).Unix()
		claims["iat"], claims["nbf"], claims["exp"] = begin, begin, end
	})
	same := s.signedAgain(token, func(map[string]any) {})
	for given, want := range map[string]bool{same: true, old: false} {
		review, err := s.cluster.ReviewToken(s.Context(), given, audience)
		// The API server's answer to an expired token is an error in the review, not of the call.
		if err != nil || review.Authenticated != want {
			s.Errorf("the API server says %t of the token (%v), want %t", review.Authenticated, err, want)
		}
	}
	return old
}

func (s *stage) signedAgain(token string, change func(claims map[string]any)) string {
	s.Helper()
	signed, err := s.cluster.SignAgain(token, change)
	if err != nil {
		s.Fatal(err)
	}
	return signed
}
