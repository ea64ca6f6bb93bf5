package main

import (
	"cmp"
	"math"
	"time"

	"inferplan/formats/document"
)

// firstError returns the first error of several checks, or nil.
func firstError(checks ...error) error { return cmp.Or(checks...) }

// checkPositive returns an error unless v is a finite number above 0.
func checkPositive(flag string, v float64) error {
	if v > 0 && v <= math.MaxFloat64 {
		return nil
	}
	return usageErrorf("--%s: found %g, expected a finite number above 0", flag, v)
}

// checkShare returns an error unless v is in (0, 1].
func checkShare(flag string, v float64) error {
	if v > 0 && v <= 1 {
		return nil
	}
	return usageErrorf("--%s: found %g, expected a share above 0 and up to 1, such as 0.99", flag, v)
}

// checkTypedShare checks a share only if its flag was typed. The value of other flags means that none is set.
func checkTypedShare(flag string, v float64, isTyped bool) error {
	if !isTyped {
		return nil
	}
	return checkShare(flag, v)
}

// checkDuration returns an error if v is below zero.
func checkDuration(flag string, v time.Duration) error {
	if v >= 0 {
		return nil
	}
	return usageErrorf("--%s: found %s, expected at least %s", flag, v, document.Duration(0))
}

// suggestion returns a hint at the word that was probably meant, or "" if none is similar.
func suggestion(word string, words []string) string {
	if hint := document.DidYouMean(word, words); hint != "" {
		return "\n  hint: " + hint
	}
	return ""
}
