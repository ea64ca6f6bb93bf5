package arrivals_test

import (
	"math"
	"testing"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

// The share of lengths up to a size is that of what is drawn.
func TestShareUpTo(t *testing.T) {
	for _, l := range []formats.Lengths{
		{Distribution: formats.LengthsFixed, Mean: 40.4},
		{Distribution: formats.LengthsNormal, Mean: 60, SD: 30, Max: 100},
		{Distribution: formats.LengthsLognormal, Mean: 60, SD: 60},
		{Distribution: formats.LengthsLogT, Location: 4, Scale: .5, Tail: 3, Max: 400},
		{Distribution: formats.LengthsEmpirical, Tokens: []int{3, 40, 41, 90}, Weights: []float64{1, 2, 3, 4}, Max: 64},
	} {
		const draws = 100_000
		draw := arrivals.Lengths(&l, seeded.New(1, "share"))
		var got [512]int
		for range draws {
			got[min(draw(), 511)]++
		}
		for _, n := range []int64{0, 1, 39, 40, 41, 64, 99, 100, 400} {
			sum := 0
			for _, c := range got[:n+1] {
				sum += c
			}
			if want, share := float64(sum)/draws, arrivals.ShareUpTo(&l, n); math.Abs(share-want) > .006 {
				t.Errorf("%s: %.4f up to %d, drawn %.4f", l.Distribution, share, n, want)
			}
		}
	}
}
