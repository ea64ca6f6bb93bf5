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
	case "b1", "u1":
		return func(b []byte) float64 { return float64(b[0]) }, 1
	case "i1":
		return func(b []byte) float64 { return float64(int8(b[0])) }, 1
	case "u2":
		return func(b []byte) float64 { return float64(le.Uint16(b)) }, 2
	case "i2":
		return func(b []byte) float64 { return float64(int16(le.Uint16(b))) }, 2
	case "u4":
		return func(b []byte) float64 { return float64(le.Uint32(b)) }, 4
	case "i4":
		return func(b []byte) float64 { return float64(int32(le.Uint32(b))) }, 4
	case "u8":
		return func(b []byte) float64 { return float64(le.Uint64(b)) }, 8
	case "i8":
		return func(b []byte) float64 { return float64(int64(le.Uint64(b))) }, 8
	}
	return nil, 0
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
