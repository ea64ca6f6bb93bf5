package trials

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats/report"
)

// Of right and wrong alone the interval is Wilson's; it holds the mean that samples are
// drawn with as often as it says, also where a sample is right in some ranges only.
func TestIntervalOfHeldOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		mean := float64(k) / float64(n)
		low, high := wilsonInterval(mean, mean*(1-mean), float64(n))
		if a, b := report.Wilson(int64(k), int64(n), heldOutConfidence); math.Abs(a-low) > 1e-9 || math.Abs(b-high) > 1e-9 {
			t.Fatalf("%d of %d: %v to %v, expected %v to %v", k, n, low, high, a, b)
		}
	})
	rng, in := rand.New(rand.NewPCG(1, 1)), 0
	const tries, n, mean = 1000, 500, .7*.9 + .3*.6
	for range tries {
		sum, squares := 0.0, 0.0
		for range n {
			x := 0.0
			if rng.Float64() < .9 {
				x += .7
			}
			if rng.Float64() < .6 {
				x += .3
			}
			sum, squares = sum+x/n, squares+x*x/n
		}
		if low, high := wilsonInterval(sum, squares-sum*sum, n); low <= mean && mean <= high {
			in++
		}
	}
	if in < 930 || in > 970 {
		t.Errorf("%d of %d intervals at %v hold the mean", in, tries, heldOutConfidence)
	}
}
