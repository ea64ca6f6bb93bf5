package usage

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/formats/document"
)

// Error is an error of what the user asked for, such as a wrong flag or a bad file.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its mark.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with a message.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

// Mark returns err as an Error, or nil if err is nil.
func Mark(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// MarkWriting returns an error of writing a file as an Error, unless it is the machine's, such as a full or read-only
// disk.
func MarkWriting(err error) error {
	for _, machine := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.EFBIG} {
		if errors.Is(err, machine) {
			return err
		}
	}
	return Mark(err)
}

// CheckRange returns an error unless v is a number in [minValue, maxValue].
func CheckRange(flag string, v, minValue, maxValue float64) error {
	if v >= minValue && v <= maxValue {
		return nil
	}
	if math.IsInf(maxValue, 1) || maxValue == math.MaxFloat64 {
		return Errorf("--%s: found %g, expected a finite number of at least %g", flag, v, minValue)
	}
	return Errorf("--%s: found %g, expected %g to %g", flag, v, minValue, maxValue)
}

// CheckWhole returns an error unless v is in [minValue, maxValue].
func CheckWhole(flag string, v, minValue, maxValue int) error {
	if v >= minValue && v <= maxValue {
		return nil
	}
	return Errorf("--%s: found %d, expected %d to %d", flag, v, minValue, maxValue)
}

// CheckPositiveDuration returns an error unless v is above zero.
func CheckPositiveDuration(flag string, v time.Duration) error {
	if v > 0 {
		return nil
	}
	return Errorf("--%s: found %s, expected more than 0, such as 30s", flag, v)
}

// CheckWord returns an error unless word is one of words. The error suggests the word that was probably meant.
func CheckWord(flag, word string, words ...string) error {
	if slices.Contains(words, word) {
		return nil
	}
	hint := document.DidYouMean(word, words)
	if hint != "" {
		hint = "\n  hint: " + hint
	}
	return Errorf("--%s: found %q, expected %s%s", flag, word, strings.Join(words, ", "), hint)
}
