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
