package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Steady returns a clock that begins at what wall says and goes on by a clock that does not
// step. What is stored with its times, and compared with them later, does not depend on
// corrections of the machine's time while a process runs.
func Steady(wall func() time.Time) func() time.Time {
	start, began := wall(), time.Now()
	return func() time.Time { return start.Add(time.Since(began)) }
}

// Record is a request as it was accepted.
type Record struct {
	// ID is 1 to 64 letters, digits, dashes and underscores. A request that is tried
	// again has the same one, which keeps it from being accepted twice.
	ID string
	// Class says how long the record is kept once it has ended; no zero byte is in it.
	Class string
	Data  []byte
}

// State is a record with what became of it.
type State struct {
	Record
	Text   []byte    // that was stored so far
	Tokens int       // of Text
	End    []byte    // how it ended; nil: it has not
	Ended  time.Time // when End was stored
}

// Store keeps requests. All methods may be called at once from several goroutines. What
// a method has stored when it returns nil is durable. An error that is none of those
// below leaves open whether it was stored.
type Store interface {
	// Accept stores a record. One with the same ID that is there already is left as it
	// is, and fresh is false.
	Accept(ctx context.Context, r *Record) (fresh bool, err error)
	// Claim takes over the next record that has not ended and that nobody holds, in the
	// order of acceptance. It waits for one. The caller holds the record until it ends
	// or is released, or until the caller's process is gone.
	Claim(ctx context.Context) (*State, error)
	// Release gives a record back that the caller cannot finish; Claim hands it out again.
	Release(ctx context.Context, id string) error
	// Append adds text behind the at bytes that are stored. ErrMoved: other text is.
	Append(ctx context.Context, id string, at int, text []byte, tokens int) error
	// Finish says how a record ended. The first end stays; ErrFinished to later ones.
	Finish(ctx context.Context, id string, end []byte) error
	// Get finds a record and what became of it.
	Get(ctx context.Context, id string) (*State, error)
	// Expire deletes records that ended longer ago than their class is kept, and says
	// how many.
	Expire(ctx context.Context, now time.Time, keep func(class string) time.Duration) (int, error)
	Values
	Close() error
}

// Values are what a front end keeps beside requests, such as files and batches, in
// pieces of MaxValue bytes at most. A key is made of parts in the form of an ID, with
// slashes between them.
type Values interface {
	Put(ctx context.Context, key string, value []byte) error
	Value(ctx context.Context, key string) ([]byte, error) // ErrNotFound
	// Keys lists the keys with a prefix, ascending.
	Keys(ctx context.Context, prefix string) ([]string, error)
	// Delete deletes a key, whether it is there or not.
	Delete(ctx context.Context, key string) error
}

// Bounds on what a store takes.
const (
	MaxValue = 512 << 10
	maxID    = 64
	maxKey   = 200
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotFound = errors.New("not found in the store")
	ErrFinished = errors.New("the request has ended")
	ErrMoved    = errors.New("other text was stored meanwhile")
	ErrClosed   = errors.New("the store is closed")
	ErrTooLarge = errors.New("too large for the store")
	// ErrRecord: a record cannot be read, as its part of the store is damaged.
	ErrRecord = errors.New("the record is damaged")
	// ErrKey: what is stored is sealed with another key, or not at all.
	ErrKey = errors.New("the store's key does not fit")
)

// Check says whether a store can take the record.
func (r *Record) Check() error {
	if !named(r.ID) {
		return fmt.Errorf("record %.80q: expected 1 to %d letters, digits, dashes and underscores", r.ID, maxID)
	}
	if len(r.Class) > maxKey || strings.IndexByte(r.Class, 0) >= 0 {
		return fmt.Errorf("record %s: class %.20q: expected at most %d bytes, none of them zero", r.ID, r.Class, maxKey)
	}
	return nil
}

// CheckKey says whether a store can take a value under the key.
func CheckKey(key string) error {
	start := 0
	for i := 0; i <= len(key); i++ {
		if i == len(key) || key[i] == '/' {
			if len(key) > maxKey || !named(key[start:i]) {
				return fmt.Errorf("key %q: expected letters, digits, dashes and underscores, with slashes between parts", key)
			}
			start = i + 1
		}
	}
	return nil
}

// named says whether s has the form of an ID.
func named(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxID
}
