package engine

import (
	"math"
	"testing"
)

// fromHalf is the number that float16's bits mean, by their definition.
func fromHalf(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	switch {
	case exponent == 31 && fraction == 0:
		return sign * math.Inf(1)
	case exponent == 31:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// Every float16 comes back as itself; what lies between two goes to the nearer,
// and in the middle to the even one.
// FromFP16 turns back what ToFP16 makes, for every float16.
func TestFromHalf(t *testing.T) {
	for h := range 1 << 16 {
		x := FromFP16(uint16(h))
		if back := ToFP16(x); x == x && back != uint16(h) || x != x && h&0x7fff <= 0x7c00 {
			t.Fatalf("%#04x is %v, and back %#04x", h, x, back)
		}
	}
}

func TestHalfRoundsToNearestEven(t *testing.T) {
	for h := 0; h < 1<<16; h++ {
		x := fromHalf(uint16(h))
		if math.IsNaN(x) {
			if got := ToFP16(float32(x)); !math.IsNaN(fromHalf(got)) {
				t.Fatalf("no number becomes %#x", got)
			}
			continue
		}
		if got := ToFP16(float32(x)); got != uint16(h) {
			t.Fatalf("%g (%#x) becomes %#x", x, h, got)
		}
		if next := fromHalf(uint16(h + 1)); h&0x7fff < 0x7bff {
			middle := float32((x + next) / 2)
			even := uint16(h + h&1)
			if got := ToFP16(middle); got != even {
				t.Fatalf("%g, between %#x and %#x, becomes %#x", middle, h, h+1, got)
			}
			up, down := math.Nextafter32(middle, float32(next)), math.Nextafter32(middle, float32(x))
			if ToFP16(up) != uint16(h+1) || ToFP16(down) != uint16(h) {
				t.Fatalf("beside the middle of %#x and %#x: %#x and %#x", h, h+1, ToFP16(down), ToFP16(up))
			}
		}
	}
	for x, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, -65520: 0xfc00, 1e-9: 0, -1e-9: 0x8000} {
		if got := ToFP16(x); got != want {
			t.Errorf("%g becomes %#x, want %#x", x, got, want)
		}
	}
}
