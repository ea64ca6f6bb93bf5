package stages

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Every cut is the thinnest of its window.
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
