package httplimit

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// Tokens are the bearer tokens that a server takes; none: it asks for none.
type Tokens [][sha256.Size]byte

// NewTokens keeps the tokens as hashes.
func NewTokens(tokens ...string) Tokens {
	out := make(Tokens, len(tokens))
	for i, t := range tokens {
		out[i] = sha256.Sum256([]byte(t))
	}
	return out
}

// Check finds the token of an Authorization header; at is its place among the tokens,
// -1 where none is asked for. It takes the same time for all.
func (t Tokens) Check(header string) (at int, err *Error) {
	if len(t) == 0 {
		return -1, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	// Hashing first makes the comparison independent of the token's length.
	got := sha256.Sum256([]byte(token))
	at = -1
	for i := range t {
		if subtle.ConstantTimeCompare(got[:], t[i][:]) == 1 {
			at = i
		}
	}
	if !strings.EqualFold(scheme, "Bearer") || at < 0 {
		return -1, &Error{Code: CodeUnauthenticated, Reason: "unauthenticated", Msg: "a bearer token is needed"}
	}
	return at, nil
}
