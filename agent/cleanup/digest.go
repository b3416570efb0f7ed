package cleanup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Digest names what a plan would do: SHA-256 of the encoded plan with digest, made_at, kept and guards empty, and without
// the positions of rules, which move with other people's rules.
func Digest(plan *offrampv1.Plan) []byte {
	bare := &offrampv1.Plan{
		Node: plan.GetNode(), Target: plan.GetTarget(), BootId: plan.GetBootId(), RunningMode: plan.GetRunningMode(),
	}
	for _, operation := range plan.GetOperations() {
		bare.Operations = append(bare.Operations, withoutPosition(operation))
	}
	// A message without maps and unknown fields always encodes.
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(bare)
	if err != nil {
		panic("encode a plan: " + err.Error())
	}
	sum := sha256.Sum256(encoded)
	return sum[:]
}

func withoutPosition(operation *offrampv1.Operation) *offrampv1.Operation {
	if operation.GetDeleteRule() == nil {
		return operation
	}
	bare := proto.CloneOf(operation)
	bare.GetDeleteRule().Position = 0
	return bare
}

// minimumDigest is how many hexadecimal digits name a plan.
const minimumDigest = 12

// ErrDigest says that something is not the digest of a plan, or not enough of it.
var ErrDigest = errors.New("not the digest of a plan: at least 12 of its 64 hexadecimal digits are needed")

// CheckDigest returns an error that wraps ErrDigest for what cannot be the beginning of a digest.
func CheckDigest(text string) error {
	padded := strings.ToLower(text)
	if len(padded)%2 == 1 {
		padded += "0"
	}
	_, err := hex.DecodeString(padded)
	if err != nil || len(text) < minimumDigest || len(text) > hex.EncodedLen(sha256.Size) {
		return fmt.Errorf("%q is %w", text, ErrDigest)
	}
	return nil
}

// MatchesDigest reports whether text, which CheckDigest accepts, names this plan.
func MatchesDigest(plan *offrampv1.Plan, text string) bool {
	return bytes.HasPrefix([]byte(hex.EncodeToString(plan.GetDigest())), []byte(strings.ToLower(text))) && CheckDigest(text) == nil
}
