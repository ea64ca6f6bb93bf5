package document

import (
	"strconv"
	"time"
)

// CountOf returns "1 model" or "3 models".
func CountOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// FormatMillis writes a duration in milliseconds for a table.
func FormatMillis(d time.Duration) string {
	v := float64(d) / 1e6
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// ShortDuration writes a duration with three digits for a sentence, as 64.9ms.
func ShortDuration(d time.Duration) string {
	unit := time.Duration(1)
	for d.Abs() >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
