package serve

import (
	"encoding/base64"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/internal/facts"
)

// tokenVersion leads a page token, so that another form can be told apart later.
const tokenVersion = "1:"

// makeToken names the last node of a page.
func makeToken(last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenVersion + last))
}

// readToken returns the node after which a page begins; empty for the first.
func readToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	name, ours := strings.CutPrefix(string(text), tokenVersion)
	// The decoder passes over line breaks and stray bits; a token that was made here is made again the same.
	if err != nil || !ours || facts.CheckNodeName(name) != nil || makeToken(name) != token {
		return "", status.Error(codes.InvalidArgument, "page_token was not made by this aggregator")
	}
	return name, nil
}
