package engine

import "math"

// ToFP16 returns the bits of the float16 nearest to a number (ties to even), rounded once. Numbers that are too large become infinity.
func ToFP16[F float32 | float64](number F) uint16 {
	x := float64(number)
	b := math.Float64bits(x)
	sign, abs := uint16(b>>48)&0x8000, math.Abs(x)
	switch {
	case math.IsNaN(x):
		return sign | 0x7e00
	case abs >= 65520:
		return sign | 0x7c00
	case abs < 0x1p-14: // the step is 2^-24
		return sign | uint16(math.RoundToEven(abs*(1<<24)))
	}
	b = b&^(1<<63) + (1<<41 - 1) + b>>42&1 // round the 42 bits that are dropped, ties to even
	// The exponent's bias is 1023 in float64 and 15 in float16: subtract the difference, 1008, from the exponent's bits.
	return sign | uint16((b-1008<<52)>>42)
}

// FromFP16 returns the float32 for the bits of a float16: one bit of sign, five of exponent, ten of fraction.
func FromFP16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // the step is 2^-24
		f := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0x7f80_0000 | fraction<<13)
	}
	// The exponents are biased by 15 and by 127.
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
