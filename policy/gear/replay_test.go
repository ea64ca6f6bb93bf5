package gear_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy/gear"
)

// Every request counts once, however seconds and windows end, and the same seed gives the
// same counts.
func TestServedCountsEveryRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := gear.Options{Window: time.Duration(rapid.IntRange(30, 1500).Draw(t, "window ms")) * time.Millisecond, Hysteresis: rapid.IntRange(1, 5).Draw(t, "hysteresis")}
		rates := make([]float64, rapid.IntRange(0, 40).Draw(t, "seconds"))
		for second := range rates {
			rates[second] = float64(rapid.IntRange(0, 4000).Draw(t, "quarters")) / 4
		}
		to, seed := []float64{250, 500, 1000}, rapid.Uint64().Draw(t, "seed")
		served := func() []float64 { return gear.RequestsByGear(rates, to, o, seeded.New(seed, "served")) }
		counts, want := served(), 0.0
		for done := 0; done < 1200 && len(rates) > 0; done += len(rates) {
			want += math.Floor(floats.Sum(rates))
		}
		if got := floats.Sum(counts); got != want || slices.Min(counts) < 0 {
			t.Fatalf("%v requests as %v, expected %v", got, counts, want)
		}
		if again := served(); !slices.Equal(counts, again) {
			t.Fatalf("the same seed gives %v and %v", counts, again)
		}
	})
}

// Rates that stay inside of a gear are all served by it, but for the first window.
func TestServedAtASteadyRate(t *testing.T) {
	counts := gear.RequestsByGear(slices.Repeat([]float64{600}, 1200), []float64{500, 1000}, gear.Options{Window: 100 * time.Millisecond, Hysteresis: 5}, seeded.New(1, "served"))
	if counts[0] == 0 || counts[0] > 200 {
		t.Errorf("%v, expected about 60 requests by the slow gear", counts)
	}
}
