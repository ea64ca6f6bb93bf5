package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// SteadyClock returns a clock that starts at the time of wall and then never steps. Times that are stored and
// compared later thus do not depend on corrections of the machine's clock while a process runs.
func SteadyClock(wall func() time.Time) func() time.Time {
	wallStart, startedAt := wall(), time.Now()
	return func() time.Time { return wallStart.Add(time.Since(startedAt)) }
}

// Record is a request as it was accepted.
type Record struct {
	// ID is 1 to 64 letters, digits, dashes and underscores. A request that is sent again has the same ID, so that it
	// is accepted only once.
	ID string
	// Class decides how long the record is kept once it has ended. It has no zero byte.
	Class string
	Data  []byte
}

// State is a record with its text and its result.
type State struct {
	Record
	Text    []byte    // the text that was stored so far
	Tokens  int       // number of tokens of Text
	Result  []byte    // how it ended; nil if it has not
	EndedAt time.Time // when Result was stored
}

// Store keeps requests. Several goroutines may call all methods at once. What a method has stored is durable when it
// returns nil. After an error other than those below it is unknown whether it was stored.
type Store interface {
	// Accept stores a record. If there is one with the same ID already, that is unchanged, and isNew is false.
	Accept(ctx context.Context, r *Record) (isNew bool, err error)
	// Claim takes over the next record that has not ended and that no process holds, in the order of acceptance. It
	// waits for one. The caller holds the record until it ends or is released, or until the caller's process is gone.
	Claim(ctx context.Context) (*State, error)
	// Release gives back a record that the caller cannot finish. It can be claimed again.
	Release(ctx context.Context, id string) error
	// Append adds text after the first offset bytes, which must be all that is stored; otherwise it returns ErrConflict.
	Append(ctx context.Context, id string, offset int, text []byte, tokens int) error
	// Finish stores the result of a record. If there is one already, that stays, and Finish returns ErrFinished.
	Finish(ctx context.Context, id string, end []byte) error
	// Get returns a record with its text and result, or ErrNotFound.
	Get(ctx context.Context, id string) (*State, error)
	// Expire deletes the records that ended longer ago than the retention of their class, and returns their number.
	Expire(ctx context.Context, now time.Time, retention func(class string) time.Duration) (int, error)
	Values
	Close() error
}

// Values stores the other data of a front end, such as files and batches. A value has at most MaxValueBytes.
// A key consists of parts in the form of an ID, separated by slashes.
type Values interface {
	Put(ctx context.Context, key string, value []byte) error
	Value(ctx context.Context, key string) ([]byte, error) // ErrNotFound if there is none
	// Keys lists the keys with a prefix, ascending.
	Keys(ctx context.Context, prefix string) ([]string, error)
	// Delete deletes the value of a key. It is no error if there is none.
	Delete(ctx context.Context, key string) error
}

// Bounds on what a store takes, in bytes.
const (
	MaxValueBytes = 512 << 10
	maxIDBytes    = 64
	maxKeyBytes   = 200
)

// Errors that callers distinguish with errors.Is.
var (
	ErrNotFound = errors.New("not found in the store")
	ErrFinished = errors.New("the request has ended")
	ErrConflict = errors.New("other text was stored meanwhile")
	ErrClosed   = errors.New("the store is closed")
	ErrTooLarge = errors.New("too large for the store")
	// ErrDamagedRecord is returned when a record cannot be read because its part of the store is damaged.
	ErrDamagedRecord = errors.New("the record is damaged")
	// ErrWrongKey is returned when data is sealed with another key, or not at all.
	ErrWrongKey = errors.New("the store's key does not fit")
)

// Check returns an error if a store cannot take the record, because its id or class has a wrong form.
func (r *Record) Check() error {
	if !isID(r.ID) {
		return fmt.Errorf("record %.80q: expected 1 to %d letters, digits, dashes and underscores", r.ID, maxIDBytes)
	}
	if len(r.Class) > maxKeyBytes || strings.IndexByte(r.Class, 0) >= 0 {
		return fmt.Errorf("record %s: class %.20q: expected at most %d bytes, none of them zero", r.ID, r.Class, maxKeyBytes)
	}
	return nil
}

// CheckKey returns an error if a store cannot take a value under the key, which is a path of ids with slashes
// between them.
func CheckKey(key string) error {
	start := 0
	for i := 0; i <= len(key); i++ {
		if i == len(key) || key[i] == '/' {
			if len(key) > maxKeyBytes || !isID(key[start:i]) {
				return fmt.Errorf("key %q: expected letters, digits, dashes and underscores, with slashes between parts", key)
			}
			start = i + 1
		}
	}
	return nil
}

// CheckValue returns an error if a store cannot take a value under a key.
func CheckValue(key string, value []byte) error {
	if len(value) > MaxValueBytes {
		return cmp.Or(CheckKey(key), fmt.Errorf("%s: %d bytes, at most %d: %w", key, len(value), MaxValueBytes, ErrTooLarge))
	}
	return CheckKey(key)
}

// isID reports whether s has the form of an ID.
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxIDBytes
}
