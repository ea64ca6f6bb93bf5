package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats/document"
)

// firstError returns the first error of several checks, or nil.
func first(checks ...error) error { return cmp.Or(checks...) }

// checkRange returns an error unless v is a number in [minValue, maxValue].
func number(flag string, v, least, most float64) error {
	if v >= least && v <= most {
		return nil
	}
	if math.IsInf(most, 1) || most == math.MaxFloat64 {
		return usageErrorf("--%s: found %g, expected a finite number of at least %g", flag, v, least)
	}
	return usageErrorf("--%s: found %g, expected %g to %g", flag, v, least, most)
}

// checkPositive returns an error unless v is a finite number above 0.
func positive(flag string, v float64) error {
	if v > 0 && v <= math.MaxFloat64 {
		return nil
	}
	return usageErrorf("--%s: found %g, expected a finite number above 0", flag, v)
}

// checkShare returns an error unless v is in (0, 1].
func share(flag string, v float64) error {
	if v > 0 && v <= 1 {
		return nil
	}
	return usageErrorf("--%s: found %g, expected a share above 0 and up to 1, such as 0.99", flag, v)
}

// checkTypedShare checks a share only if its flag was typed. The value of other flags means that none is set.
func shareTyped(flag string, v float64, typed bool) error {
	if !typed {
		return nil
	}
	return share(flag, v)
}

// checkWhole returns an error unless v is in [minValue, maxValue].
func whole(flag string, v, least, most int) error {
	if v >= least && v <= most {
		return nil
	}
	return usageErrorf("--%s: found %d, expected %d to %d", flag, v, least, most)
}

// checkMinDuration returns an error if v is below minValue.
func atLeast(flag string, v, least time.Duration) error {
	if v >= least {
		return nil
	}
	return usageErrorf("--%s: found %s, expected at least %s", flag, v, document.Duration(least))
}

// checkPositiveDuration returns an error unless v is above zero.
func longer(flag string, v time.Duration) error {
	if v > 0 {
		return nil
	}
	return usageErrorf("--%s: found %s, expected more than 0, such as 30s", flag, v)
}

// checkWord returns an error unless word is one of words. The error suggests the word that was probably meant.
func oneOf(flag, word string, words ...string) error {
	if slices.Contains(words, word) {
		return nil
	}
	return usageErrorf("--%s: found %q, expected %s%s", flag, word, strings.Join(words, ", "), meant(word, words))
}

// suggestion returns a hint at the word that was probably meant, or "" if none is similar.
func meant(word string, words []string) string {
	if hint := document.DidYouMean(word, words); hint != "" {
		return "\n  hint: " + hint
	}
	return ""
}
