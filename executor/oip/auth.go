package oip

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// tokenCheck compares bearer tokens in constant time; the zero value lets all through.
type tokenCheck struct {
	on   bool
	hash [sha256.Size]byte
}

func newTokenCheck(token string) tokenCheck {
	if token == "" {
		return tokenCheck{}
	}
	return tokenCheck{true, sha256.Sum256([]byte(token))}
}

func (t tokenCheck) check(header string) *Error {
	if !t.on {
		return nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	// Hashing first makes the comparison independent of the token's length.
	got := sha256.Sum256([]byte(token))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], t.hash[:]) != 1 {
		return &Error{Code: CodeUnauthenticated, Reason: "unauthenticated", Msg: "a bearer token is needed"}
	}
	return nil
}
