package oip

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"sync"

	"inferplan/executor/jsonscan"
)

// strconv takes up to twenty microseconds for a number of a few digits if it is subnormal, or so near the middle
// between two floats that all digits of a large power of ten matter. A request may hold hundreds of thousands of such
// numbers. For large powers we divide integers instead, which costs one division.

const (
	maxFastExponent = 40  // up to this power of ten strconv is fast
	maxDigits       = 800 // digits that can matter: the middle between two floats has at most 768 (FP64)
)

// floatScratch holds the integers of one conversion.
type floatScratch struct {
	num, den, q, r big.Int
	digits         []byte
}

var scratchPool = sync.Pool{New: func() any { return new(floatScratch) }}

// powersOfTen are computed when they are first needed. The largest brings maxDigits digits below the smallest float.
var powersOfTen [maxDigits + 400]struct {
	computeOnce sync.Once
	v           big.Int
}

// powerOfTen returns 10^n.
func powerOfTen(n int) *big.Int {
	t := &powersOfTen[n]
	t.computeOnce.Do(func() { t.v.Exp(big.NewInt(10), big.NewInt(int64(n)), nil) })
	return &t.v
}

// parseFloat returns the float of 32 or 64 bits (size) that is nearest to a JSON number, rounded once. It returns
// strconv.ErrRange if the number is too large.
func parseFloat(text []byte, size int) (float64, error) {
	s := scratchPool.Get().(*floatScratch)
	defer scratchPool.Put(s)
	negative, exponent, hasMore := s.readDigits(text)
	n := len(s.digits)
	topExponent := exponent + n                   // the number is less than 10^topExponent
	v, minExponent, maxExponent := 0.0, -324, 309 // powers of ten that bound a float of 64 bits
	if size == 32 {
		minExponent, maxExponent = -46, 39
	}
	switch {
	// Far below the smallest float it is zero, far above the largest an error. Small powers go to strconv, the rest
	// is divided.
	case n == 0 || topExponent < minExponent:
	case topExponent > maxExponent:
		return 0, strconv.ErrRange
	default:
		if n <= 19 && topExponent > -maxFastExponent && topExponent < maxFastExponent {
			x, err := strconv.ParseFloat(jsonscan.Alias(text), 64)
			if err == nil && size == 64 {
				return x, nil
			}
			if err == nil && roundsToFP32(x) {
				return float64(float32(x)), nil
			}
		}
		v = s.roundedQuotient(exponent, hasMore, size)
	}
	if negative {
		v = -v
	}
	if size == 32 && math.Abs(v) > math.MaxFloat32 || math.IsInf(v, 0) {
		return 0, strconv.ErrRange
	}
	return v, nil
}

// readDigits reads the digits of a JSON number, without leading zeros and at most maxDigits, into s.digits.
// exponent is the power of ten of the last one. hasMore is set if digits follow that are not all zero.
func (s *floatScratch) readDigits(text []byte) (negative bool, exponent int, hasMore bool) {
	s.digits = s.digits[:0]
	point := false
	for i, c := range text {
		switch {
		case c == '-':
			negative = true
		case c == '.':
			point = true
		case c|0x20 == 'e':
			e, err := strconv.Atoi(string(text[i+1:]))
			if err != nil || e < -1<<30 || e > 1<<30 { // beyond any float: the exact value does not matter
				e = 1 << 30
				if text[i+1] == '-' {
					e = -e
				}
			}
			return negative, exponent + e, hasMore
		case len(s.digits) == maxDigits:
			hasMore = hasMore || c != '0'
			if !point {
				exponent++
			}
		default:
			if c != '0' || len(s.digits) > 0 {
				s.digits = append(s.digits, c)
			}
			if point {
				exponent--
			}
		}
	}
	return negative, exponent, hasMore
}

// roundedQuotient returns the number s.digits * 10^exponent as a float of 32 or 64 bits, rounded once; in the
// middle between two floats it rounds to even. inexact says that the number is a little more than that, because
// digits were left out.
func (s *floatScratch) roundedQuotient(exponent int, inexact bool, size int) float64 {
	precision, lowestBit := 53, -1074 // the lowest bit of a float
	if size == 32 {
		precision, lowestBit = 24, -149
	}
	s.setInteger()
	den := powerOfTen(max(-exponent, 0))
	if exponent > 0 {
		s.q.Mul(&s.num, powerOfTen(exponent))
		s.num.Set(&s.q)
	}
	// Scale so that the quotient has 62 to 64 bits, of which a float keeps the first ones.
	shift := 63 - (s.num.BitLen() - den.BitLen())
	if shift >= 0 {
		s.num.Lsh(&s.num, uint(shift))
	} else {
		den = s.den.Lsh(den, uint(-shift))
	}
	s.q.QuoRem(&s.num, den, &s.r)
	q := s.q.Uint64()
	inexact = inexact || s.r.Sign() != 0

	// Round to the bits of the float.
	droppedBits := max(bits.Len64(q)-precision, lowestBit+shift)
	if droppedBits <= 0 {
		return math.Ldexp(float64(q), -shift)
	}
	if droppedBits > 64 {
		return 0
	}
	mantissa, dropped, halfUnit := uint64(0), q, uint64(1)<<(droppedBits-1)
	if droppedBits < 64 {
		mantissa, dropped = q>>droppedBits, q&(1<<droppedBits-1)
	}
	if dropped > halfUnit || dropped == halfUnit && (inexact || mantissa&1 == 1) {
		mantissa++
	}
	return math.Ldexp(float64(mantissa), droppedBits-shift)
}

// setInteger sets s.num to the integer that the digits in s.digits make.
func (s *floatScratch) setInteger() {
	if len(s.digits) <= 19 {
		v := uint64(0)
		for _, c := range s.digits {
			v = v*10 + uint64(c-'0')
		}
		s.num.SetUint64(v)
		return
	}
	s.num.SetString(string(s.digits), 10)
}
