package stages

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// By time, no other choice of cuts leaves a faster slowest block, nor one as fast
// that fewer bytes cross; by bytes, every cut is the thinnest of its window.
func TestPrePartitionRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.IntRange(2, 9).Draw(t, "layers")
		n := rapid.IntRange(1, 5).Draw(t, "blocks")
		at := make([]float64, l+1)
		for i := range l {
			at[i+1] = at[i] + rapid.Float64Range(0.01, 1).Draw(t, "time")
		}
		whole := at[l]
		for i := range at {
			at[i] /= whole
		}
		var bytes []int64
		for range l - 1 {
			bytes = append(bytes, int64(rapid.IntRange(-1, 5).Draw(t, "bytes")))
		}
		slowest := func(cuts []int) float64 {
			worst, last := 0.0, 0.0
			for _, c := range cuts {
				worst, last = max(worst, at[c+1]-last), at[c+1]
			}
			return max(worst, 1-last)
		}
		cross := func(cuts []int) (sum int64) {
			for _, c := range cuts {
				sum += bytes[c]
			}
			return sum
		}
		got := evenCuts(at, bytes, n)
		if len(got) > n-1 || !slices.IsSorted(got) {
			t.Fatalf("%v for %d blocks", got, n)
		}
		var try func(from int, cuts []int)
		try = func(from int, cuts []int) {
			if s := slowest(cuts); s < slowest(got)-1e-6 {
				t.Fatalf("cuts %v leave a slowest block of %v, %v one of %v", cuts, s, got, slowest(got))
			} else if len(cuts) == len(got) && math.Abs(s-slowest(got)) < 1e-12 && cross(cuts) < cross(got) {
				t.Fatalf("cuts %v cross %d, %v cross %d", cuts, cross(cuts), got, cross(got))
			}
			if len(cuts) == n-1 {
				return
			}
			for i := from; i < len(bytes); i++ {
				if bytes[i] >= 0 {
					try(i+1, append(slices.Clone(cuts), i))
				}
			}
		}
		try(0, nil)
		thin := thinCuts(at, bytes, n)
		for _, c := range thin {
			window := math.Floor(at[c+1]*float64(n) + 0.5)
			for i, b := range bytes {
				if b >= 0 && math.Floor(at[i+1]*float64(n)+0.5) == window && b < bytes[c] {
					t.Fatalf("cut %d of %d bytes, %d in the same window has %d", c, bytes[c], i, b)
				}
			}
		}
	})
}
