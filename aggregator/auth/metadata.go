package auth

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ClaimedKey is the metadata key under which people's programs send the name that the API server knows their user by. Names
// may hold any text, which gRPC carries only under keys that end in -bin.
const ClaimedKey = "offramp-claimed-user-bin"

// maxClaimed bounds a claimed name, in bytes.
const maxClaimed = 253

// claimed reads the claimed name. What cannot be shown on one line is left out: it ends in logs.
func claimed(ctx context.Context) string {
	values := metadata.ValueFromIncomingContext(ctx, ClaimedKey)
	if len(values) != 1 || !utf8.ValidString(values[0]) {
		return ""
	}
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, values[0])
	for len(clean) > maxClaimed {
		_, last := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-last]
	}
	return clean
}

// bearer reads the token of a call; empty when there is none.
func bearer(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		return "", nil
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if len(values) > 1 || !found || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", status.Error(codes.Unauthenticated, `the authorization metadata is not one "Bearer TOKEN"`)
	}
	return token, nil
}
