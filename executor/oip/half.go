package oip

import "math"

// toHalf rounds a float to the nearest FP16, ties to even, and returns its bits. It returns false if the value is
// beyond the largest one.
func toHalf(f float64) (uint16, bool) {
	bits := math.Float64bits(f)
	sign := uint16(bits >> 48 & 0x8000)
	exp := int(bits>>52&0x7FF) - 1023
	man := bits & (1<<52 - 1)
	switch {
	case exp == 1024: // infinity or NaN
		if man != 0 {
			return sign | 0x7E00, true
		}
		return sign | 0x7C00, true
	case exp < -25: // below half of the smallest subnormal, including zeros and subnormals of FP64
		return sign, true
	case exp < -14: // below the smallest normal FP16
		// Subnormal: the value in units of 2^-24.
		shift := uint(-14 - exp + 42)
		return sign | uint16(roundShift(man|1<<52, shift)), true
	}
	// A mantissa that rounds up to the next power of two carries into the exponent.
	h := uint32(exp+15)<<10 + uint32(roundShift(man, 42))
	if h >= 0x7C00 {
		return sign | 0x7C00, false
	}
	return sign | uint16(h), true
}

// roundShift returns v / 2^n, rounded to nearest, ties to even.
func roundShift(v uint64, n uint) uint64 {
	q := v >> n
	remainder := v & (1<<n - 1)
	if mid := uint64(1) << (n - 1); remainder > mid || remainder == mid && q&1 == 1 {
		q++
	}
	return q
}

// fromHalf returns the value of an FP16, given by its bits.
func fromHalf(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h >> 10 & 0x1F)
	man := uint32(h & 0x3FF)
	switch exp {
	case 0: // zero or subnormal
		v := float32(man) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31: // infinity or NaN
		return math.Float32frombits(sign | 0x7F800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}
