package oip

import "math"

// exactPowers are the powers of ten that FP64 represents exactly.
var exactPowers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// fastFloat reads a JSON number at the start of b, and returns its length, if that takes no more than one exact
// multiplication or division (Clinger 1990): at most 15 digits and a small exponent, as nearly all numbers in
// requests have. Otherwise ok is false, and the caller parses the number exactly, including its syntax.
func fastFloat(b []byte) (v float64, n int, ok bool) {
	i := 0
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}

	// The digits before the point.
	firstDigit := i
	var mantissa uint64
	for i < len(b) && b[i]-'0' <= 9 {
		mantissa = mantissa*10 + uint64(b[i]-'0')
		i++
	}
	wholeDigits := i - firstDigit
	if wholeDigits == 0 || wholeDigits > 1 && b[firstDigit] == '0' {
		return 0, 0, false
	}

	// The digits after the point.
	digits, scale := wholeDigits, 0
	if i < len(b) && b[i] == '.' {
		i++
		start := i
		for i < len(b) && b[i]-'0' <= 9 {
			mantissa = mantissa*10 + uint64(b[i]-'0')
			i++
		}
		if scale = i - start; scale == 0 {
			return 0, 0, false
		}
		digits += scale
		if mantissa < 1e15 && wholeDigits == 1 && b[firstDigit] == '0' && digits <= 19 {
			digits = 15 // leading zeros do not count as digits
		}
	}

	// The exponent.
	exponent := -scale
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		negativeExponent := false
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			negativeExponent = b[i] == '-'
			i++
		}
		start, e := i, 0
		for i < len(b) && b[i]-'0' <= 9 && i-start < 4 {
			e = e*10 + int(b[i]-'0')
			i++
		}
		if i == start || i-start == 4 {
			return 0, 0, false
		}
		if negativeExponent {
			e = -e
		}
		exponent += e
	}

	// One exact multiplication or division.
	if digits > 15 || exponent < -22 || exponent > 22 {
		return 0, 0, false
	}
	v = float64(mantissa)
	if exponent < 0 {
		v /= exactPowers[-exponent]
	} else {
		v *= exactPowers[exponent]
	}
	if negative {
		v = -v
	}
	return v, i, true
}

// roundsToFP32 returns whether a float64, itself rounded from a decimal number, gives the same FP32 as the decimal
// rounded directly. It does not if it lies midway between two FP32 values, or where FP32 is subnormal or
// overflows.
func roundsToFP32(v float64) bool {
	const tail = 1<<29 - 1 // bits of a float64 that FP32 does not have
	if math.Float64bits(v)&tail == 1<<28 {
		return false
	}
	a := math.Abs(v)
	return a == 0 || a >= 0x1p-126 && a < math.MaxFloat32
}
