package engine

import "math"

// ToFP16 returns the bits of the float16 nearest to x (ties to even). Numbers that are too large become infinity.
func ToFP16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, abs := uint16(b>>16)&0x8000, b&0x7fff_ffff
	switch {
	case abs > 0x7f80_0000: // NaN
		return sign | 0x7e00
	case abs >= 0x477f_f000: // 65520 and more
		return sign | 0x7c00
	case abs < 0x3880_0000: // below 2^-14 the step is 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*(1<<24)))
	}
	abs += 0xfff + abs>>13&1 // round the 13 bits that are dropped, ties to even
	// The exponent's bias is 127 in float32 and 15 in float16: subtract the difference, 112, from the exponent's bits.
	return sign | uint16((abs-0x3800_0000)>>13)
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
