package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats/document"
)

// first is the first of several checks that failed.
func first(checks ...error) error { return cmp.Or(checks...) }

// number refuses what is outside [least, most], and what is no number at all.
func number(flag string, v, least, most float64) error {
	if v >= least && v <= most {
		return nil
	}
	if math.IsInf(most, 1) || most == math.MaxFloat64 {
		return usageErrorf("--%s: found %g, expected a finite number of at least %g", flag, v, least)
	}
	return usageErrorf("--%s: found %g, expected %g to %g", flag, v, least, most)
}

// positive refuses everything but finite numbers above 0.
func positive(flag string, v float64) error {
	if v > 0 && v <= math.MaxFloat64 {
		return nil
	}
	return usageErrorf("--%s: found %g, expected a finite number above 0", flag, v)
}

// share refuses what is not in (0, 1].
func share(flag string, v float64) error {
	if v > 0 && v <= 1 {
		return nil
	}
	return usageErrorf("--%s: found %g, expected a share above 0 and up to 1, such as 0.99", flag, v)
}

// shareTyped is share of a flag that was typed; others have no value of their own.
func shareTyped(flag string, v float64, typed bool) error {
	if !typed {
		return nil
	}
	return share(flag, v)
}

// whole refuses integers outside [least, most].
func whole(flag string, v, least, most int) error {
	if v >= least && v <= most {
		return nil
	}
	return usageErrorf("--%s: found %d, expected %d to %d", flag, v, least, most)
}

// atLeast refuses shorter durations.
func atLeast(flag string, v, least time.Duration) error {
	if v >= least {
		return nil
	}
	return usageErrorf("--%s: found %s, expected at least %s", flag, v, document.Duration(least))
}

// longer refuses durations that are not above zero.
func longer(flag string, v time.Duration) error {
	if v > 0 {
		return nil
	}
	return usageErrorf("--%s: found %s, expected more than 0, such as 30s", flag, v)
}

// oneOf refuses other words, and names the one that was probably meant.
func oneOf(flag, word string, words ...string) error {
	if slices.Contains(words, word) {
		return nil
	}
	return usageErrorf("--%s: found %q, expected %s%s", flag, word, strings.Join(words, ", "), meant(word, words))
}

// meant is a hint at the word that was probably meant; empty without one.
func meant(word string, words []string) string {
	if hint := document.DidYouMean(word, words); hint != "" {
		return "\n  hint: " + hint
	}
	return ""
}
