package profiler

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// halfValue is the exact value of a float16 bit pattern.
func halfValue(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(1+frac/1024, exp-15)
	switch exp {
	case 0:
		v = math.Ldexp(frac/1024, -14)
	case 31:
		v = math.Inf(1)
	}
	if h>>15 == 1 {
		return -v
	}
	return v
}

// Every float16 value rounds to itself; what lies between two neighbours
// rounds to the nearer, from the middle to the one with the even pattern.
func TestHalfRoundExhaustive(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ {
		a, b := halfValue(h), halfValue(h+1)
		if h == 0x7bff {
			b = 65536 // where the next value would stand
		}
		mid := (a + b) / 2
		even := a
		if h%2 == 1 {
			even = b
		}
		up := b
		if h == 0x7bff {
			up = math.Inf(1)
			if h%2 == 1 {
				even = up
			}
		}
		below, above := math.Nextafter32(float32(mid), 0), math.Nextafter32(float32(mid), 70000)
		for _, c := range []struct {
			x    float32
			want float64
		}{{float32(a), a}, {below, a}, {float32(mid), even}, {above, up}} {
			if float64(float32(mid)) != mid && c.x == float32(mid) {
				continue
			}
			if got := halfRound(c.x); float64(got) != c.want {
				t.Fatalf("%g rounds to %g, expected %g", c.x, got, c.want)
			}
			if got := halfRound(-c.x); float64(got) != -c.want {
				t.Fatalf("%g rounds to %g, expected %g", -c.x, got, -c.want)
			}
		}
	}
	if x := float32(math.NaN()); halfRound(x) == halfRound(x) {
		t.Error("NaN became a number")
	}
	if x := math.Float32frombits(0x8000_0000); math.Float32bits(halfRound(x)) != 0x8000_0000 {
		t.Error("minus zero lost its sign")
	}
}

func TestHalfRoundTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float32().Draw(t, "x")
		once := halfRound(x)
		if twice := halfRound(once); math.Float32bits(once) != math.Float32bits(twice) && once == once {
			t.Fatalf("%g, then %g, then %g", x, once, twice)
		}
	})
}

func TestTop1ComparesClassOfEveryPosition(t *testing.T) {
	for _, c := range []struct {
		name         string
		a, b         []float32
		shape        []int64
		agree, total int
	}{
		{"classes", []float32{1, 3, 2}, []float32{1, 2.5, 2}, []int64{1, 3}, 1, 1},
		{"another class", []float32{1, 3, 2}, []float32{1, 2, 2.5}, []int64{1, 3}, 0, 1},
		{"positions", []float32{1, 2, 4, 3}, []float32{1, 2, 3, 4}, []int64{1, 2, 2}, 1, 2},
		{"classes in four dimensions", []float32{1, 3, 2}, []float32{1, 3, 2}, []int64{1, 3, 1, 1}, 1, 1},
		{"one number", []float32{1}, []float32{2}, []int64{1, 1}, 1, 1},
	} {
		if a, n := countTop1(c.a, c.b, c.shape); a != c.agree || n != c.total {
			t.Errorf("%s: %d of %d, expected %d of %d", c.name, a, n, c.agree, c.total)
		}
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	if d := maxAbsDiff([]float32{1, inf, nan}, []float32{1.5, inf, nan}); d != 0.5 {
		t.Errorf("difference %v, expected 0.5", d)
	}
	if d := maxAbsDiff([]float32{1}, []float32{inf}); d != math.MaxFloat32 {
		t.Errorf("overflow gives %v", d)
	}
}
