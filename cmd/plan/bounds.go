package main

import (
	"cmp"
	"math"
	"time"

	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// firstError returns the first error of several checks, or nil.
func firstError(checks ...error) error { return cmp.Or(checks...) }

// checkRange returns an error unless v is a number in [minValue, maxValue].
func checkRange(flag string, v, minValue, maxValue float64) error {
	return usage.CheckRange(flag, v, minValue, maxValue)
}

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

// checkWhole returns an error unless v is in [minValue, maxValue].
func checkWhole(flag string, v, minValue, maxValue int) error {
	return usage.CheckWhole(flag, v, minValue, maxValue)
}

// checkDuration returns an error if v is below zero.
func checkDuration(flag string, v time.Duration) error {
	if v >= 0 {
		return nil
	}
	return usageErrorf("--%s: found %s, expected at least %s", flag, v, document.Duration(0))
}

// checkPositiveDuration returns an error unless v is above zero.
func checkPositiveDuration(flag string, v time.Duration) error {
	return usage.CheckPositiveDuration(flag, v)
}

// checkWord returns an error unless word is one of words. The error suggests the word that was probably meant.
func checkWord(flag, word string, words ...string) error {
	return usage.CheckWord(flag, word, words...)
}

// suggestion returns a hint at the word that was probably meant, or "" if none is similar.
func suggestion(word string, words []string) string {
	if hint := document.DidYouMean(word, words); hint != "" {
		return "\n  hint: " + hint
	}
	return ""
}
