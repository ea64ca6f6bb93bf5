package formats

import "time"

// Micros is a duration that documents write as microseconds with at most three
// decimals; it is held as integer nanoseconds, so reading and writing are exact.
type Micros time.Duration

// D returns the duration.
func (m Micros) D() time.Duration { return time.Duration(m) }

// SLO is a latency target as a person writes it: absolute ("200ms",
// "165577.2us") or as a multiple of the whole-model batch-1 latency on the
// fastest device kind of the profile ("5x").
type SLO struct {
	Duration time.Duration // set when absolute
	Times    float64       // set when a multiple
}

// IsZero tells whether no target was given.
func (s SLO) IsZero() bool { return s == SLO{} }

// Duration is a duration written by a person: "30s", "200ms", "5m".
type Duration time.Duration

// D returns the duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// Bytes is a size: an integer count of bytes, or text with a unit ("24GiB",
// "512MB").
type Bytes int64
