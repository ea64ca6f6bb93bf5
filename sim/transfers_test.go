package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The histogram's percentile is within its bins' width of the sorted list's.
func TestTransferTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, other transferTimes
	var list []time.Duration
	var sum time.Duration
	for i := range 10_000 {
		d := time.Duration(rng.ExpFloat64() * 1e6)
		if i%2 == 0 {
			h.add(d)
		} else {
			other.add(d)
		}
		list, sum = append(list, d), sum+d
	}
	h.merge(&other)
	slices.Sort(list)
	got := h.summary()
	want := list[9899]
	if got.Count != 10_000 || got.Mean != sum/10_000 {
		t.Errorf("got %+v, want 10000 with mean %v", got, sum/10_000)
	}
	if off := float64(got.P99)/float64(want) - 1; off < -0.017 || off > 0.017 {
		t.Errorf("p99 %v, of the list %v", got.P99, want)
	}
	for _, d := range []time.Duration{0, 1, 63, 64, 65, 127, 128, 1 << 40, 1<<62 + 1} {
		if got := binMiddle(transferBin(d)); float64(got) < 0.98*float64(d) || float64(got) > 1.02*float64(d) {
			t.Errorf("%d is in a bin with middle %d", d, got)
		}
	}
}
