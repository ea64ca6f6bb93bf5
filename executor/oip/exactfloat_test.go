package oip

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"inferplan/executor/jsonscan"
	"inferplan/formats/seeded"
)

// hardNumbers are decimals that are hard to round: in the middle between two floats,
// just beside it, subnormal, at the ends of the range.
func hardNumbers() []string {
	out := []string{
		"0", "-0", "0.0e99999999999999999999", "1e-99999999999999999999", "5e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "4.9406564584124654e-324", "2.2250738585072011e-308", "2.2250738585072014e-308",
		"1.7976931348623157e308", "1.7976931348623159e308", "179769313486231570000e289", "1e400", "1e309", "-1e309", "3.4028234e38", "3.4028235677973366e38", "3.4028235677973367e38", "3.5e38", "1.4e-45", "7.006492321624085e-46", "7.0064923216240854e-46",
		"1e-40", "1e-46", "1e-320", "1e40", "9007199254740993", "1e23", "8.5e-310", "0.000001e-315", strings.Repeat("1", 400), "0." + strings.Repeat("0", 400) + "1", "1" + strings.Repeat("0", 308), "1" + strings.Repeat("0", 350) + "e-330",
	}
	rng := seeded.New(1, "hard numbers")
	for range 3000 {
		x := math.Float64frombits(rng.Uint64() &^ (1 << 63))
		if rng.IntN(3) == 0 {
			x = math.Float64frombits(rng.Uint64N(1 << 52))
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			continue
		}
		out = append(out, strconv.FormatFloat(x, 'e', rng.IntN(25), 64), strconv.FormatFloat(x, 'g', -1, 64))
		// The middle between x and the next one, exactly and with a digit more.
		if y := x / 2; y > 0 {
			middle := strconv.FormatFloat(math.Nextafter(x, 0), 'e', 760, 64)
			out = append(out, middle, strings.Replace(middle, "e", "1e", 1))
		}
		f := math.Float32frombits(rng.Uint32() &^ (1 << 31))
		if !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) {
			middle := (float64(f) + float64(math.Nextafter32(f, 0))) / 2
			text := strconv.FormatFloat(middle, 'e', 200, 64)
			out = append(out, text, strings.Replace(text, "e", "1e", 1), "-"+strconv.FormatFloat(middle, 'e', 16, 64))
		}
	}
	return out
}

func TestHardNumbersAreRoundedExactly(t *testing.T) {
	for _, text := range hardNumbers() {
		for _, size := range []int{32, 64} {
			want, werr := strconv.ParseFloat(text, size)
			got, err := parseFloat([]byte(text), size)
			if (err != nil) != (werr != nil) || err == nil && math.Float64bits(got) != math.Float64bits(want) {
				t.Fatalf("%.60s at %d bits: got %v %v, want %v %v", text, size, got, err, want, werr)
			}
		}
	}
}

func FuzzParseFloat(f *testing.F) {
	for _, text := range hardNumbers()[:60] {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := jsonscan.Cursor{B: []byte(text)}
		number, _, err := c.Number()
		if err != nil || c.I != len(text) {
			return
		}
		for _, size := range []int{32, 64} {
			want, werr := strconv.ParseFloat(text, size)
			got, err := parseFloat(number, size)
			if (err != nil) != (werr != nil) || err == nil && math.Float64bits(got) != math.Float64bits(want) {
				t.Errorf("%.60q at %d bits: got %v %v, want %v %v", text, size, got, err, want, werr)
			}
		}
	})
}

func BenchmarkHardNumbers(b *testing.B) {
	for _, c := range []struct {
		name, text string
		size       int
	}{
		{"usual 32", "0.123456789012345678", 32}, {"usual 64", "0.12345678901234567", 64}, {"subnormal 32", "1e-40", 32}, {"subnormal 64", "1e-320", 64}, {"near the middle", "2.2250738585072011e-308", 64},
		{"below 32", "2.2250738585072011e-308", 32}, {"middle of 64 at -300", strconv.FormatFloat((1e-300+math.Nextafter(1e-300, 1))/2, 'e', 24, 64), 64}, {"middle of 64 at 300", "1.00000000000000005250476025520442024870446858110815e300", 64},
		{"middle of 64", "9007199254740993.00000000000001", 64}, {"middle of 32", "1.000000059604644775390625", 32}, {"middle of 32 at -30", strconv.FormatFloat((float64(float32(1e-30))+float64(math.Nextafter32(1e-30, 1)))/2, 'e', 40, 64), 32},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := []byte(c.text)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = parseFloat(text, c.size)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(text)+1), "ns/byte")
		})
	}
}
