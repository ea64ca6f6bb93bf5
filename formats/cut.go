package formats

import (
	"math"
	"strconv"
)

// CutBytes is what crosses a cut, per sample, as a profile says it. The zero
// value is not known: the field is absent. A zero that is written is NoBytes.
type CutBytes int64

// NoBytes is a cut that is known to carry nothing.
const NoBytes CutBytes = math.MinInt64

// KnownCut is a size that is known, be it zero.
func KnownCut(bytes int64) CutBytes {
	if bytes == 0 {
		return NoBytes
	}
	return CutBytes(bytes)
}

// Known tells whether the profile says the size.
func (c CutBytes) Known() bool { return c != 0 }

// Bytes is the size, 0 where it is not known.
func (c CutBytes) Bytes() int64 {
	if c == NoBytes {
		return 0
	}
	return int64(c)
}

// MarshalJSON writes the size.
func (c CutBytes) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, c.Bytes(), 10), nil }

// SetWhole sets a size that a document has; validation refuses what is negative.
func (c *CutBytes) SetWhole(n int64) { *c = KnownCut(max(n, -math.MaxInt64)) }

// Whole is the size as a document has it.
func (c CutBytes) Whole() int64 { return c.Bytes() }
