package literal

import (
	"encoding/binary"
	"math"
)

// decoder returns a function that reads one element of a NumPy type (without its byte order), and the bytes of an
// element. For types that are not numbers the function is nil.
func decoder(typ string) (func([]byte) float64, int) {
	le := binary.LittleEndian
	switch typ {
	case "f2":
		return func(b []byte) float64 { return fromFP16(le.Uint16(b)) }, 2
	case "f4":
		return func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }, 4
	case "f8":
		return func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }, 8
	case "b1", "u1", "u2", "u4", "u8":
		width := int(typ[1] - '0')
		return func(b []byte) float64 { return float64(wholeNumber(b, width)) }, width
	case "i1", "i2", "i4", "i8":
		width := int(typ[1] - '0')
		signBits := 64 - 8*width // above the number's own, which its sign fills
		return func(b []byte) float64 { return float64(int64(wholeNumber(b, width)<<signBits) >> signBits) }, width
	}
	return nil, 0
}

// wholeNumber returns the integer without a sign in the first bytes of b, the lowest first.
func wholeNumber(b []byte, width int) (n uint64) {
	for i := range width {
		n |= uint64(b[i]) << (8 * i)
	}
	return n
}

// fromFP16 returns the number for the bits of a float16.
func fromFP16(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 == 1 {
		sign = -1
	}
	switch exp {
	case 0: // zero or subnormal
		return sign * math.Ldexp(frac, -24)
	case 31: // infinity or no number
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
